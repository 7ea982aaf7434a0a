"""How long holds take, by streams and depth. Decides how much is drafted, never what is emitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from tfjax.engine.memory import MemoryPlan
from tfjax.engine.timing import cached, fastest_ms, measure

RETRIES = 2
SUSPICIOUS = 1.1
"""A depth that takes so many times more than as many first drafts was measured badly."""

Grid = Mapping[int, Mapping[int, float]]
"""Milliseconds of one hold: [streams][depth]."""


def doubling(most: int) -> list[int]:
    """1, 2, 4, ... and `most`."""
    return [*(1 << i for i in range(most.bit_length()) if 1 << i < most), most]


class Timed(Protocol):
    """A drafter whose holds can be timed."""

    memory: MemoryPlan

    @property
    def timed_depths(self) -> Sequence[int]:
        """The depths to time, ascending from 1."""

    def hold_once(self, streams: int, depth: int) -> None:
        """One hold at the start of empty lanes, waited for. Its draws are sampled ones, which take a little longer."""


def time_holds(drafter: Timed, directory: Path, key: Sequence[str]) -> tuple[Grid, bool]:
    """The grid measured earlier for the same key, else a new one; and whether it was measured now."""
    streams, depths = doubling(drafter.memory.lanes), drafter.timed_depths
    points = [(count, depth) for count in streams for depth in depths]

    def measure_now() -> dict[int, float]:
        rows = [_measure_depths(depths, partial(drafter.hold_once, count)) for count in streams]
        return dict(enumerate(row[depth] for row in rows for depth in depths))

    flat, is_new = cached(directory, ["holds", *key, repr(points)], range(len(points)), measure_now)
    grid: dict[int, dict[int, float]] = {count: {} for count in streams}
    for index, (count, depth) in enumerate(points):
        grid[count][depth] = flat[index]
    return grid, is_new


def _measure_depths(depths: Sequence[int], run: Callable[[int], None]) -> dict[int, float]:
    """As `measure`; and as no draft costs more than the first, whose forward is widest, one that did is timed again."""
    row = measure(depths, run)
    for _ in range(RETRIES):
        for depth in depths:
            if row[depth] > SUSPICIOUS * depth * row[depths[0]]:
                row[depth] = min(row[depth], fastest_ms(run, depth))
    return row
