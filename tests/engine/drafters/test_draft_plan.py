from __future__ import annotations

import pytest

from tfjax.engine.drafters.draft_plan import draft_plan
from tfjax.engine.drafters.draft_step import HoldBucket


def test_streams_double_up_to_all_lanes() -> None:
    for lanes, expected in ((1, [1]), (2, [1, 2]), (3, [1, 2, 4]), (4, [1, 2, 4]), (5, [1, 2, 4, 8])):
        assert [bucket.streams for bucket in draft_plan(lanes, 8, 2).holds] == expected


@pytest.mark.parametrize("least", [2, 4])
def test_no_forward_is_narrower_than_it_may_be(least: int) -> None:
    plan = draft_plan(8, 3, least)
    assert plan.holds[0] == HoldBucket(1, least, least, 3)
    assert plan.holds[-1] == HoldBucket(8, 16, 8, 3)
    for bucket in plan.holds:
        assert bucket.rows >= 2 * bucket.streams
        assert least <= bucket.step_rows <= bucket.rows
        assert bucket.step_rows >= bucket.streams


def test_the_smallest_bucket_that_holds() -> None:
    plan = draft_plan(8, 3, 2)
    assert [plan.hold_bucket(streams).streams for streams in (1, 2, 3, 4, 5, 8)] == [1, 2, 4, 4, 8, 8]
    assert [plan.absorb_bucket(rows).rows for rows in (1, 16, 17, 128, 129, 512, 9000)] == [
        16, 16, 128, 128, 512, 512, 512,
    ]  # fmt: skip
