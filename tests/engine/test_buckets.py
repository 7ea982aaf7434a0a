from __future__ import annotations

import pytest

from tfjax.engine.buckets import Plan, kernel_plan, row_invariant_plan, single_bucket_plan
from tfjax.kernels.matmul import MIN_ROWS

PLANS = [row_invariant_plan(2), row_invariant_plan(4), single_bucket_plan(), kernel_plan(16)]


@pytest.mark.parametrize("plan", PLANS, ids=["least 2", "least 4", "single", "kernels"])
def test_a_forward_goes_to_the_smallest_bucket_that_holds_it(plan: Plan) -> None:
    chunks = tuple(bucket.rows for bucket in plan.prompt)
    for pick, sizes in ((lambda rows: plan.verify_bucket(rows, 1), plan.widths), (plan.prompt_bucket, chunks)):
        assert list(sizes) == sorted(set(sizes))
        for rows in range(1, sizes[-1] + 1):
            assert pick(rows).rows == min(size for size in sizes if size >= rows)


def test_a_window_lies_in_the_lowest_tile_that_holds_it() -> None:
    plan = row_invariant_plan(2)
    tiles = {(rows, widest): plan.verify_bucket(rows, widest).tile_rows for rows in (8, 16, 32) for widest in (1, 3, 5)}
    assert tiles == {(8, 1): 2, (8, 3): 4, (8, 5): 4} | {
        (rows, widest): tile for rows in (16, 32) for widest, tile in ((1, 4), (3, 4), (5, 8))
    }
    assert plan.verify_bucket(32, 32).tile_rows == 8, "no tile is that tall"


def test_a_chunk_of_a_prompt_lies_in_tall_tiles() -> None:
    plan = row_invariant_plan(2)
    assert {rows: plan.prompt_bucket(rows).tile_rows for rows in (8, 16, 32)} == {8: 4, 16: 8, 32: 8}


@pytest.mark.parametrize("plan", PLANS, ids=["least 2", "least 4", "single", "kernels"])
def test_shapes_are_sound(plan: Plan) -> None:
    assert set(plan.all) == {*plan.verify, *plan.prompt}
    assert list(plan.verify) == sorted(plan.verify, key=lambda bucket: (bucket.rows, bucket.tile_rows))
    for bucket in plan.all:
        assert MIN_ROWS <= bucket.draws <= bucket.rows
        assert bucket.tile_rows >= MIN_ROWS
    for bucket in plan.verify:
        assert bucket.draws == bucket.rows, "every row of a window is drawn"


def test_the_buckets_of_a_processor() -> None:
    plan = row_invariant_plan(2)
    assert [bucket.rows for bucket in plan.prompt] == [2, 4, 8, 16, 32, 128, 512]
    assert plan.widths == (2, 4, 8, 16, 32)


def test_no_product_has_fewer_rows_than_are_exact() -> None:
    for least in (2, 4):
        for bucket in row_invariant_plan(least).all:
            assert min(bucket.rows, bucket.draws) >= least


def test_a_single_bucket_is_one() -> None:
    assert len(single_bucket_plan().all) == 1


@pytest.mark.parametrize(
    ("rows", "pieces"),
    [(1, [1]), (128, [128]), (129, [128, 1]), (230, [128, 102]), (300, [128, 128, 44]), (384, [128, 128, 128])],
)
def test_a_chunk_is_cut_where_a_wide_bucket_would_be_mostly_padding(rows: int, pieces: list[int]) -> None:
    assert row_invariant_plan(2).prompt_pieces(rows) == pieces


@pytest.mark.parametrize("plan", PLANS, ids=["least 2", "least 4", "single", "kernels"])
def test_the_pieces_of_a_chunk_are_all_of_it(plan: Plan) -> None:
    for rows in range(1, plan.prompt[-1].rows + 1):
        pieces = plan.prompt_pieces(rows)
        computed = sum(plan.prompt_bucket(piece).rows for piece in pieces)
        assert sum(pieces) == rows
        assert computed <= plan.prompt_bucket(rows).rows
        assert computed - rows < 128


def test_a_nearly_full_chunk_is_one_forward() -> None:
    assert row_invariant_plan(2).prompt_pieces(385) == [385]
    assert row_invariant_plan(2).prompt_pieces(512) == [512]


def test_the_buckets_of_device_kernels_are_their_tiles() -> None:
    plan = kernel_plan(16)
    assert plan.arithmetic == "row-invariant"
    assert plan.widths == (8, 16, 32, 64)
    assert [(bucket.rows, bucket.draws) for bucket in plan.prompt[4:]] == [(128, 8), (512, 8)]
    assert {bucket.tile_rows for bucket in plan.all} == {16}
    assert plan.prompt_pieces(190) == [128, 62]
