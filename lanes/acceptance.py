"""How often one stream's drafts land, by their depth."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

PRIORS = (0.85, 0.75, 0.70, 0.65, 0.60, 0.55, 0.50)
RATE = 0.15
FLOOR = 0.05


class Acceptance:
    """The chance that draft j lands where all before it landed, learned from the windows that verified one.

    It starts at `PRIORS`, whose last value goes on for deeper drafts, and stays above a floor: a chance of nothing
    would never be tried again.
    """

    def __init__(self) -> None:
        self._chances: list[float] = []

    def chance(self, depth: int) -> float:
        """Chance of the draft at this depth, from 1 on, given those before it."""
        return self._chances[depth - 1] if depth <= len(self._chances) else _prior(depth)

    def chain(self, most: int) -> tuple[float, ...]:
        """For each depth up to `most`, the chance that it and all before it land."""
        self._know(most)
        return tuple(accumulate(self._chances[:most], mul))

    def expected(self, depth: int) -> float:
        """Tokens that a window with this many drafts yields on average: one always, and those that land."""
        return 1.0 + sum(self.chain(depth))

    def observe(self, drafted: int, accepted: int) -> None:
        """Learn from a window whose first `accepted` of `drafted` drafts landed; those past the miss say nothing."""
        seen = min(drafted, accepted + 1)
        self._know(seen)
        for place in range(seen):
            chance = self._chances[place]
            self._chances[place] = max(FLOOR, chance + RATE * ((place < accepted) - chance))

    def restore(self, kept: int) -> None:
        """Trust the first `kept` depths at least as much as before anything was learned."""
        self._know(kept)
        for place in range(kept):
            self._chances[place] = max(self._chances[place], _prior(place + 1))

    def _know(self, depth: int) -> None:
        """Hold a chance of each depth up to this one."""
        while len(self._chances) < depth:
            self._chances.append(_prior(len(self._chances) + 1))


def _prior(depth: int) -> float:
    return PRIORS[min(depth, len(PRIORS)) - 1]
