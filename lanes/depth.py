"""How many drafts to ask a drafter for whose holds have no measured price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import truediv

from tfjax.lanes.acceptance import Acceptance
from tfjax.lanes.holds import pays

RATE = 0.2
PROBE_EVERY = 8
FIRST_WAIT = 8
LONGEST_WAIT = 128
UNUSED_TRIES = 2


class DepthRule:
    """One stream's depth: the one with the most expected tokens per millisecond, where it beats plain by the margin.

    Every 8th round goes one deeper than that, to learn what lies there. A stream whose drafts do not pay waits for some
    plain rounds and then tries one draft; each try that changes nothing doubles the wait, a depth that pays resets it.
    `choose` may be asked any number of times a round: only `observe` moves the clocks.
    """

    def __init__(self, acceptance: Acceptance, most: int) -> None:
        self._acceptance = acceptance
        self._most = most
        self._cost_ms: dict[int, float] = {}
        self._rounds = 0
        self._plain_rounds = 0
        self._wait = FIRST_WAIT
        self._trying = False
        self._unused_tries = 0

    def choose(self, room: int, forward_ms: Callable[[int], float], step_ms: float, copy_ahead: bool = False) -> int:
        """Drafts to ask for, 0 to `room`.

        Args:
            room: drafts that the stream has any use for.
            forward_ms: time of a forward by its rows.
            step_ms: the drafter's time per draft.
            copy_ahead: a copied continuation is likely to take the drafts' place, so one is asked for and no more.
        """
        self._trying = False
        room = min(room, self._most)
        if room <= 0:
            return 0
        if copy_ahead:
            return 1
        cost_ms = self._costs(room, forward_ms, step_ms)
        tokens = _tokens(self._acceptance, room)
        best = _best(tokens, cost_ms)
        if pays(tokens[best], cost_ms[best], tokens[0], cost_ms[0]):
            self._wait, self._plain_rounds, self._unused_tries = FIRST_WAIT, 0, 0
            return min(room, best + ((self._rounds + 1) % PROBE_EVERY == 0))
        self._trying = self._plain_rounds >= self._wait
        return int(self._trying)

    def under_priors(self, room: int, forward_ms: Callable[[int], float], step_ms: float) -> int:
        """The best depth of at least 1 for a stream about which nothing was learned; 0 only where there is no room."""
        room = min(room, self._most)
        return _best(_tokens(Acceptance(), room), self._costs(room, forward_ms, step_ms)) if room > 0 else 0

    def observe(self, drafted: int, accepted: int, round_ms: float | None) -> None:
        """A round of this stream ended: with `drafted` drafts verified, or plain; `round_ms` is None where not timed.

        The first plain round after a try was asked for may have been under way already, a second one cut the draft:
        then the try counts as made.
        """
        self._rounds += 1
        if round_ms:
            known_ms = self._cost_ms.get(drafted, round_ms)
            self._cost_ms[drafted] = known_ms + RATE * (round_ms - known_ms)
        self._plain_rounds += 1
        self._unused_tries += self._trying and not drafted
        over = drafted > 0 or self._unused_tries == UNUSED_TRIES
        if over and self._trying:
            self._wait = min(2 * self._wait, LONGEST_WAIT)
        if over:
            self._plain_rounds = self._unused_tries = 0
        self._trying = False

    def _costs(self, room: int, forward_ms: Callable[[int], float], step_ms: float) -> list[float]:
        """Milliseconds of a round by its drafts, 0 to `room`: as timed, else at least what its parts take.

        Rounds take longer than their parts; the least that a row was seen to add counts for depths that were not timed.
        """
        excess_ms = min(
            ((cost - forward_ms(depth + 1) - step_ms * depth) / (depth + 1) for depth, cost in self._cost_ms.items()),
            default=0.0,
        )
        excess_ms = max(0.0, excess_ms)
        return [
            self._cost_ms[depth]
            if depth in self._cost_ms
            else forward_ms(depth + 1) + step_ms * depth + (depth + 1) * excess_ms
            for depth in range(room + 1)
        ]


def _tokens(acceptance: Acceptance, most: int) -> list[float]:
    """Expected tokens of a window by its drafts, 0 to `most`."""
    return list(accumulate(acceptance.chain(most), initial=1.0))


def _best(tokens: Sequence[float], cost_ms: Sequence[float]) -> int:
    """The depth of at least 1 with the most expected tokens per millisecond; of equals the least deep."""
    rates = list(map(truediv, tokens[1:], cost_ms[1:]))
    return 1 + rates.index(max(rates))
