"""How often one stream's drafts land, by their depth."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

PRIORS = (0.85, 0.75, 0.70, 0.65, 0.60, 0.55, 0.50)
RATE = 0.15
STEADY_RATE = 0.05
FIRST_WEIGHT = 3
FLOOR = 0.05
STEADY_AFTER = round(1 / STEADY_RATE) - FIRST_WEIGHT
RATES = [1 / (FIRST_WEIGHT + seen) for seen in range(STEADY_AFTER)] + [STEADY_RATE]


class Usual:
    """How drafts landed lately in all streams together: what a new stream's are taken to do, by half.

    The other half are the priors, so that a stream is tried although others had no luck.
    """

    def __init__(self) -> None:
        self._chances: list[float] = []

    def chance(self, depth: int) -> float:
        """Chance of the draft at this depth, from 1 on, given those before it."""
        return (self.seen(depth) + _prior(depth)) / 2

    def seen(self, depth: int) -> float:
        """How often drafts at this depth landed lately."""
        return self._chances[depth - 1] if depth <= len(self._chances) else _prior(depth)

    def observe(self, drafted: int, accepted: int) -> None:
        """Learn from one window of any stream."""
        verified = min(drafted, accepted + 1)
        while len(self._chances) < verified:
            self._chances.append(_prior(len(self._chances) + 1))
        _learn(self._chances, drafted, accepted, STEADY_RATE)


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
        chances = self._chances[:most]
        if len(chances) < most:
            chances += [self._first(depth) for depth in range(len(chances) + 1, most + 1)]
        return tuple(accumulate(chances, mul))

    def expected(self, depth: int) -> float:
        """Tokens that a window with this many drafts yields on average: one always, and those that land."""
        return 1.0 + sum(self.chain(depth))

    def observe(self, drafted: int, accepted: int) -> None:
        """Learn from a window whose first `accepted` of `drafted` drafts landed; those past the miss say nothing."""
        if not drafted:
            return
        verified = min(drafted, accepted + 1)
        self._know(verified)
        if self._usual is None:
            _learn(self._chances, drafted, accepted, RATE)
            return
        # No depth is seen more often than those before it: where the last one is learned steadily, all are.
        if self._seen[verified - 1] == STEADY_AFTER:
            _learn(self._chances, drafted, accepted, STEADY_RATE)
        else:
            self._learn_first(verified, accepted)
        self._usual.observe(drafted, accepted)

    def expect(self, depth: int, chance: float) -> None:
        """Learn of a draft that was not verified, from the chance that it would have landed."""
        self._know(depth)
        place = depth - 1
        rate = RATE if self._usual is None else RATES[self._seen[place]]
        self._seen[place] = min(self._seen[place] + 1, STEADY_AFTER)
        self._chances[place] = max(FLOOR, self._chances[place] + rate * (chance - self._chances[place]))

    def relax(self, rate: float) -> None:
        """Come closer, by this part of the way, to how drafts land in all streams together."""
        if self._usual is not None:
            for place, chance in enumerate(self._chances):
                self._chances[place] += rate * (self._usual.seen(place + 1) - chance)

    def restore(self, kept: int) -> None:
        """Trust the first `kept` depths at least as much as before anything was learned."""
        self._know(kept)
        for place in range(kept):
            self._chances[place] = max(self._chances[place], _prior(place + 1))

    def _first(self, depth: int) -> float:
        return _prior(depth) if self._usual is None else self._usual.chance(depth)

    def _learn_first(self, verified: int, accepted: int) -> None:
        """Learn from one of the first windows, at each depth by the average of those that it was seen in."""
        for place, seen in enumerate(self._seen[:verified]):
            chance, rate = self._chances[place], RATES[seen]
            landed = chance + rate * (1 - chance)
            self._chances[place] = landed if place < accepted else max(FLOOR, chance * (1 - rate))
            self._seen[place] = min(seen + 1, STEADY_AFTER)

    def _know(self, depth: int) -> None:
        """Hold a chance of each depth up to this one."""
        while len(self._chances) < depth:
            self._chances.append(self._first(len(self._chances) + 1))
            self._seen.append(0)


def _learn(chances: list[float], drafted: int, accepted: int, rate: float) -> None:
    """Move the chances of a window's verified depths: up where the draft landed, down where it missed."""
    chances[:accepted] = [chance + rate * (1 - chance) for chance in chances[:accepted]]
    if accepted < drafted:
        chances[accepted] = max(FLOOR, chances[accepted] * (1 - rate))


def _prior(depth: int) -> float:
    return PRIORS[min(depth, len(PRIORS)) - 1]
