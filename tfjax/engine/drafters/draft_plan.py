"""Which programs of a drafting model are compiled."""

from __future__ import annotations

from dataclasses import dataclass

from tfjax.engine.buckets import STEP_ROWS
from tfjax.engine.drafters.draft_step import HoldBucket
from tfjax.engine.step import Bucket

CATCH_UP_ROWS = 2
"""Rows a stream usually brings to a hold: its pending token, and the last draft where all drafts landed."""


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """The buckets of one drafter.

    Attributes:
        holds: ascending in streams.
        absorbs: for rows that nothing is drawn from, ascending.
    """

    holds: tuple[HoldBucket, ...]
    absorbs: tuple[Bucket, ...]

    def hold_bucket(self, streams: int) -> HoldBucket:
        """The smallest one that holds `streams`."""
        return next(bucket for bucket in self.holds if bucket.streams >= streams)

    def absorb_bucket(self, rows: int) -> Bucket:
        """The smallest one that holds `rows`, else the widest."""
        return next((bucket for bucket in self.absorbs if bucket.rows >= rows), self.absorbs[-1])


def draft_plan(lanes: int, depth: int, least_rows: int) -> DraftPlan:
    """Buckets for up to `lanes` streams and `depth` drafts, no forward narrower than `least_rows`."""
    streams = [1]
    while streams[-1] < lanes:
        streams.append(2 * streams[-1])
    holds = tuple(
        HoldBucket(count, max(CATCH_UP_ROWS * count, least_rows), max(count, least_rows), depth) for count in streams
    )
    return DraftPlan(holds, (Bucket(16, 0, 8), Bucket(STEP_ROWS, 0, STEP_ROWS), Bucket(512, 0, STEP_ROWS)))
