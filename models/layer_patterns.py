"""How a row of layers is cut into runs that repeat, so that equal steps are compiled once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Repeat[Kind: Hashable]:
    """Some layers of these kinds, one after another, all of it so many times."""

    pattern: tuple[Kind, ...]
    times: int

    @property
    def cost(self) -> int:
        """Layers that are written out, and one for the loop where there is any."""
        return len(self.pattern) + (self.times > 1)

    @property
    def layers(self) -> int:
        """Layers in all."""
        return len(self.pattern) * self.times


def repeats[Kind: Hashable](kinds: Sequence[Kind]) -> tuple[Repeat[Kind], ...]:
    """Cut a sequence of kinds into the runs of the least cost; of such cuts, one with the fewest loops, then runs.

    What does not repeat is a run of one time. Of cuts that are left the one with the longest first run is taken.
    """
    count = len(kinds)
    best: list[tuple[Repeat[Kind], ...]] = [()] * (count + 1)
    for start in range(count - 1, -1, -1):
        firsts = (
            Repeat(tuple(kinds[start : start + size]), times)
            for size in range(1, count - start + 1)
            for times in range(1, _repeated(kinds, start, size) + 1)
        )
        best[start] = min(((first, *best[start + first.layers]) for first in firsts), key=_rank)
    return best[0]


def _repeated[Kind: Hashable](kinds: Sequence[Kind], start: int, size: int) -> int:
    """How often the `size` kinds from `start` on stand there one after another."""
    equal = 0
    while start + size + equal < len(kinds) and kinds[start + equal] == kinds[start + size + equal]:
        equal += 1
    return 1 + equal // size


def _rank[Kind: Hashable](runs: tuple[Repeat[Kind], ...]) -> tuple[int, int, int, int]:
    return sum(run.cost for run in runs), sum(run.times > 1 for run in runs), len(runs), -runs[0].layers


def one_by_one[Kind: Hashable](kinds: Sequence[Kind]) -> tuple[Repeat[Kind], ...]:
    """The same layers with no loop."""
    return tuple(Repeat((kind,), 1) for kind in kinds)
