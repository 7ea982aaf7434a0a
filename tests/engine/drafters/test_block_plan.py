from __future__ import annotations

import pytest

from tests.engine.drafters.pair import PLAN
from tfjax.engine.drafters.block_plan import BlockBucket, block_plan


def test_buckets() -> None:
    plan = block_plan(3, 7, 0, PLAN, shorter=(2, 4, 9))
    assert [bucket.streams for bucket in plan.holds] == [1, 1, 1, 2, 2, 2, 4, 4, 4]
    assert [bucket.slots for bucket in plan.holds[:3]] == [2, 4, 7], "a shorter block than the whole one, or none"
    assert plan.absorbs == (4, 32, 64), "each row count once"
    assert plan.depth == 7


@pytest.mark.parametrize(
    ("streams", "depth", "found"), [(1, 1, (1, 2)), (1, 3, (1, 7)), (2, 7, (2, 7)), (3, 2, (4, 2))]
)
def test_the_smallest_that_holds(streams: int, depth: int, found: tuple[int, int]) -> None:
    assert block_plan(4, 7, 0, PLAN, shorter=(2,)).hold_bucket(streams, depth) == BlockBucket(*found)


def test_an_anchor_that_drafts_nothing_takes_a_slot() -> None:
    plan = block_plan(1, 5, 1, PLAN, shorter=(2,))
    assert [bucket.slots for bucket in plan.holds] == [3, 6]
    assert plan.hold_bucket(1, 2).slots == 3
    assert plan.hold_bucket(1, 3).slots == 6


@pytest.mark.parametrize(
    ("shorter", "timed"), [((), [1, 7]), ((2,), [1, 2, 3, 7]), ((1, 2, 4), [1, 2, 3, 4, 5, 7]), ((6,), [1, 6, 7])]
)
@pytest.mark.parametrize("first_slot", [0, 1])
def test_the_depths_between_which_times_lie_on_lines(
    shorter: tuple[int, ...], timed: list[int], first_slot: int
) -> None:
    assert block_plan(2, 7, first_slot, PLAN, shorter).timed_depths == timed
