"""What a round costs, in milliseconds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

FIRST_OVERHEAD_MS = 8.0
RATE = 0.2


class Prices:
    """Price of a round = its overhead on the host + the measured time of the width that its rows pad to.

    `window_ms` is the backend's own table and may be filled later; nothing can be priced before.
    """

    def __init__(self, widths: Sequence[int], window_ms: Mapping[int, float]) -> None:
        self._widths = tuple(widths)
        self._window_ms = window_ms
        self._overhead_ms: dict[int, float] = {}

    @property
    def known(self) -> bool:
        return all(width in self._window_ms for width in self._widths)

    def forward_ms(self, rows: int) -> float:
        """Time of the forward that `rows` rows pad to."""
        return self._window_ms[self._widths[bisect_left(self._widths, rows)]]

    def overhead_ms(self, streams: int) -> float:
        """What rounds of this many streams took beyond their forward; that of the nearest number seen."""
        if not self._overhead_ms:
            return FIRST_OVERHEAD_MS
        nearest = min(self._overhead_ms, key=lambda seen: abs(seen - streams))
        return self._overhead_ms[nearest]

    def of_round(self, streams: int) -> Callable[[int], float]:
        """Milliseconds of a round of this many streams, by its rows."""
        overhead_ms = self.overhead_ms(streams)
        return lambda rows: overhead_ms + self.forward_ms(rows)

    def observe(self, rows: int, streams: int, round_ms: float) -> None:
        """Learn the overhead from a round without drafts: with drafts the residual would hold the rows' cost too."""
        if not self.known or rows != streams:
            return
        sample = max(0.0, round_ms - self.forward_ms(rows))
        known = self._overhead_ms.get(streams, sample)
        self._overhead_ms[streams] = known + RATE * (sample - known)
