"""What it costs to let the drafter draft, and whether that pays."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

HoldGrid = Mapping[int, Mapping[int, float]]

UNPRICED: HoldGrid = MappingProxyType({})
MARGIN = 1.05
EXPLORED = 1.25


class Holds:
    """Milliseconds of one hold, from those measured at some numbers of streams and some depths.

    `hold_ms` is the drafter's own grid, [streams][depth]; points may be added later, but none is changed. Between
    measured points both directions are linear. Outside, the nearest number of streams stands in, and depth is
    proportional.
    """

    def __init__(self, hold_ms: HoldGrid = UNPRICED) -> None:
        self._hold_ms = hold_ms
        self._points = 0
        self._known_ms = cache(self.ms)

    @property
    def priced(self) -> bool:
        return any(self._hold_ms.values())

    def ms(self, streams: int, depth: int) -> float:
        """Time of a hold that drafts `depth` tokens for each of these streams; 0 where there is none, or no price."""
        measured = sorted(count for count, row in self._hold_ms.items() if row)
        if not measured or streams <= 0:
            return 0.0
        low, high = _neighbours(measured, streams)
        low_ms, high_ms = _at_depth(self._hold_ms[low], depth), _at_depth(self._hold_ms[high], depth)
        return _between(low, low_ms, high, high_ms, streams)

    def table(self) -> Callable[[int, int], float]:
        """`ms` for the points that there are now, which does not work out anything twice."""
        points = sum(map(len, self._hold_ms.values()))
        if points != self._points:
            self._points, self._known_ms = points, cache(self.ms)
        return self._known_ms

    @staticmethod
    def can_explore(price_ms: float, plain_ms: float) -> bool:
        """Whether a hold that does not pay is cheap enough to be tried now and then."""
        return price_ms < EXPLORED * plain_ms


def pays(expected_tokens: float, price_ms: float, plain_tokens: float, plain_ms: float, margin: float = MARGIN) -> bool:
    """Whether a round with drafts yields at least `margin` times the tokens per millisecond of one without."""
    return expected_tokens * plain_ms >= margin * plain_tokens * price_ms


def _at_depth(row: Mapping[int, float], depth: int) -> float:
    depths = sorted(row)
    low, high = _neighbours(depths, depth)
    if depth < low or depth > high:
        return row[low] * depth / low
    return _between(low, row[low], high, row[high], depth)


def _neighbours(points: list[int], at: int) -> tuple[int, int]:
    """The points on both sides; the same one twice where it is met or where there is none on the other side."""
    place = bisect_left(points, at)
    high = points[min(place, len(points) - 1)]
    return (high if high <= at or not place else points[place - 1]), high


def _between(low: int, low_ms: float, high: int, high_ms: float, at: int) -> float:
    return low_ms if low == high else low_ms + (high_ms - low_ms) * (at - low) / (high - low)
