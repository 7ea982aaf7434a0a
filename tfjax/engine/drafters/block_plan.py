"""Which programs of a drafter that makes whole blocks are compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfjax.engine.buckets import Plan

SHORTER = {"cpu": (2, 4)}
"""Drafts of blocks that are compiled beside the whole one where rows cost time; elsewhere they are no cheaper."""


@dataclass(frozen=True, slots=True)
class BlockBucket:
    """Shapes of one compiled hold.

    Attributes:
        streams: most streams that it drafts for.
        slots: rows of each stream's block, its pending token's and masks.
    """

    streams: int
    slots: int


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """The buckets of one drafter.

    Attributes:
        depth: most drafts of a stream.
        first_slot: the slot whose row gives the first draft.
        holds: ascending in streams, then in slots.
        absorbs: row counts of the target's forwards, whose features it takes.
    """

    depth: int
    first_slot: int
    holds: tuple[BlockBucket, ...]
    absorbs: tuple[int, ...]

    @property
    def most_streams(self) -> int:
        """Of one hold."""
        return self.holds[-1].streams

    def hold_bucket(self, streams: int, depth: int) -> BlockBucket:
        """The smallest one that makes `depth` drafts for `streams`."""
        slots = depth + self.first_slot
        return next(bucket for bucket in self.holds if bucket.streams >= streams and bucket.slots >= slots)

    @property
    def timed_depths(self) -> list[int]:
        """Depths whose times tell those of all others: the least and the most that each length of block makes."""
        most = sorted({bucket.slots - self.first_slot for bucket in self.holds})
        least = [1, *(depth + 1 for depth in most[:-1])]
        return sorted({*least, *most})


def block_plan(lanes: int, depth: int, first_slot: int, target: Plan, shorter: Sequence[int] = ()) -> BlockPlan:
    """Buckets for up to `lanes` streams and `depth` drafts; `shorter` are drafts of further, shorter blocks."""
    streams = [1]
    while streams[-1] < lanes:
        streams.append(2 * streams[-1])
    depths = [*(count for count in shorter if count < depth), depth]
    holds = tuple(BlockBucket(count, drafts + first_slot) for count in streams for drafts in depths)
    return BlockPlan(depth, first_slot, holds, tuple(sorted({bucket.rows for bucket in target.all})))
