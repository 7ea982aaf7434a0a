"""How long rounds take."""

from __future__ import annotations

from collections.abc import Callable

from tfjax.lanes.flight import Flight
from tfjax.lanes.prices import Prices


class RoundClock:
    """Times rounds and lets prices learn from them."""

    def __init__(self, clock: Callable[[], float], prices: Prices) -> None:
        self._clock = clock
        self._prices = prices
        self._settled_s: float | None = None

    def rest(self) -> None:
        """There was nothing to do: time until the next round begins is nobody's."""
        self._settled_s = None

    def settle(self, flight: Flight, behind: Flight | None) -> float | None:
        """Milliseconds that a forward which was just read took; None where that says nothing about its round.

        The flight `behind` it was queued in that time, so where only one of both had the drafter at work it is a
        mixture.
        """
        now_s = self._clock()
        round_ms = 1000 * (now_s - self._began_s(flight))
        self._settled_s = now_s
        if not flight.timed or (behind is not None and bool(behind.held[0]) != bool(flight.held[0])):
            return None
        streams, rows = len(flight.windows), flight.rows
        if rows > streams or not flight.held[0]:  # a plain round that paid for drafts is no measure of plain
            drafting, deepest = flight.drafting, flight.held[1]
            self._prices.observe(rows, streams, round_ms, drafting=drafting, deepest=deepest, ahead=flight.ahead)
        return round_ms

    def _began_s(self, flight: Flight) -> float:
        """Where the round before it was settled, so that what the host did since then counts.

        Not after a rest, nor for a plain round that waited: it would be queued ahead where there were no drafts, and
        the host's time be hidden. Nor where depths are no joint decision, where rounds are only compared.
        """
        if self._settled_s is None:
            return flight.began_s
        if flight.is_plain or not self._prices.hold.priced:
            return max(flight.began_s, self._settled_s)
        return self._settled_s
