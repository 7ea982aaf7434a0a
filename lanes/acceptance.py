"""How often one stream's drafts land, by their depth."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

PRIORS = (0.85, 0.75, 0.70, 0.65, 0.60, 0.55, 0.50)
RATE = 0.15
STEADY_RATE = 0.05
FIRST_WEIGHT = 3
FLOOR = 0.05


class Usual:
    """How drafts landed lately in all streams together: what a new stream's are taken to do, by half.

    The other half are the priors, so that a stream is tried although others had no luck.
    """

    def __init__(self) -> None:
        self._chances: list[float] = []

    def chance(self, depth: int) -> float:
        """Chance of the draft at this depth, from 1 on, given those before it."""
        seen = self._chances[depth - 1] if depth <= len(self._chances) else _prior(depth)
        return (seen + _prior(depth)) / 2

    def observe(self, drafted: int, accepted: int) -> None:
        """Learn from one window of any stream."""
        for place in range(min(drafted, accepted + 1)):
            if place == len(self._chances):
                self._chances.append(_prior(place + 1))
            self._chances[place] = _moved(self._chances[place], place < accepted, STEADY_RATE)


class Acceptance:
    """The chance that draft j lands where all before it landed, learned from the windows that verified one.

    It starts at `PRIORS`, whose last value goes on for deeper drafts, moves by `RATE`, and stays above a floor: a
    chance of nothing would never be tried again.

    With a `usual` to start from it learns steadily instead, as joint decisions need: by the average of the first
    windows, since to find out that drafts do not land is a loss and should take few, and slowly later, since a few
    misses in a row say little. Measured in simulated time, `tests/lanes/test_never_loses.py`.
    """

    def __init__(self, usual: Usual | None = None) -> None:
        self._usual = usual
        self._chances: list[float] = []
        self._seen: list[int] = []

    def chance(self, depth: int) -> float:
        """Chance of the draft at this depth, from 1 on, given those before it."""
        return self._chances[depth - 1] if depth <= len(self._chances) else self._first(depth)

    def chain(self, most: int) -> tuple[float, ...]:
        """For each depth up to `most`, the chance that it and all before it land."""
        later = [self._first(depth) for depth in range(len(self._chances) + 1, most + 1)]
        return tuple(accumulate([*self._chances[:most], *later], mul))

    def expected(self, depth: int) -> float:
        """Tokens that a window with this many drafts yields on average: one always, and those that land."""
        return 1.0 + sum(self.chain(depth))

    def observe(self, drafted: int, accepted: int) -> None:
        """Learn from a window whose first `accepted` of `drafted` drafts landed; those past the miss say nothing."""
        seen = min(drafted, accepted + 1)
        self._know(seen)
        for place in range(seen):
            self._chances[place] = _moved(self._chances[place], place < accepted, self._rate(place))
            self._seen[place] += 1
        if self._usual is not None:
            self._usual.observe(drafted, accepted)

    def restore(self, kept: int) -> None:
        """Trust the first `kept` depths at least as much as before anything was learned."""
        self._know(kept)
        for place in range(kept):
            self._chances[place] = max(self._chances[place], _prior(place + 1))

    def _rate(self, place: int) -> float:
        return RATE if self._usual is None else max(STEADY_RATE, 1 / (FIRST_WEIGHT + self._seen[place]))

    def _first(self, depth: int) -> float:
        return _prior(depth) if self._usual is None else self._usual.chance(depth)

    def _know(self, depth: int) -> None:
        """Hold a chance of each depth up to this one."""
        while len(self._chances) < depth:
            self._chances.append(self._first(len(self._chances) + 1))
            self._seen.append(0)


def _moved(chance: float, landed: bool, rate: float) -> float:
    return max(FLOOR, chance + rate * (landed - chance))


def _prior(depth: int) -> float:
    return PRIORS[min(depth, len(PRIORS)) - 1]
