from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tests.kernels.conv_streams import LENGTH, PAGES, ConvStreams, Material, Part, compiled, material, whole
from tests.row_invariance import bits
from tfjax.engine.buckets import row_invariant_plan, single_bucket_plan
from tfjax.kernels import short_conv
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.short_conv import MOST_TAPS, RING, own_places

BF16 = ml_dtypes.bfloat16
DTYPES = pytest.mark.parametrize("dtype", [np.float32, BF16])
BORDERS = (62, 63, 64, 65, 66, 126, 127, 128, 129, 130, 191, 192, 193, 255, 256, 257)
"""Around the ends of pages and of the ring."""


def whole_prompt(streams: ConvStreams) -> None:
    streams.forward(Part(0, 0, 0, LENGTH))


def chunks_of(size: int) -> Callable[[ConvStreams], None]:
    def run(streams: ConvStreams) -> None:
        for start in range(0, LENGTH, size):
            streams.forward(Part(0, 1, start, min(start + size, LENGTH)), rows=max(size, 2))

    run.__name__ = f"chunks of {size}"
    return run


def up_to_borders(streams: ConvStreams) -> None:
    start = 0
    for stop in (*BORDERS, LENGTH):
        streams.forward(Part(0, 2, start, stop))
        start = stop


def beside_another(streams: ConvStreams) -> None:
    for start in range(0, LENGTH, 33):
        stop = min(start + 33, LENGTH)
        streams.forward(Part(1, 0, start, stop), Part(0, 3, start, stop), Part(1, 1, 0, 5), rows=80)


def rejected(streams: ConvStreams) -> None:
    """After each window its rows are computed again, from its first, second ... row on."""
    start = 0
    while start < LENGTH:
        stop = min(start + 17, LENGTH)
        streams.forward(Part(0, 0, start, stop), change=3)
        kept = start + 1 + start % 5
        streams.forward(Part(0, 0, start, min(kept, LENGTH)))
        start = kept


def widest_windows_rejected(streams: ConvStreams) -> None:
    """A window as wide as the ring allows, of which one row is kept."""
    width = RING - streams.m.weight.shape[1] + 1
    for start in range(LENGTH):
        if start + width <= LENGTH and start % 7 in (1, 3):
            streams.forward(Part(0, 0, start, start + width), change=3)
        streams.forward(Part(0, 0, start, start + 1))


def lane_reused(streams: ConvStreams) -> None:
    streams.forward(Part(1, 1, 0, 200))
    streams.poison_lane(1)
    streams.forward(Part(0, 1, 0, 1))
    streams.forward(Part(0, 1, 1, 2))
    streams.forward(Part(0, 1, 2, LENGTH))


BY_ONE, BY_THREE, BY_65 = map(chunks_of, (1, 3, 65))
ARRANGEMENTS = [
    whole_prompt,
    *map(chunks_of, (2, 7, 64, 127, 128, 129)),
    BY_THREE,
    BY_65,
    up_to_borders,
    beside_another,
    rejected,
    widest_windows_rejected,
    lane_reused,
]


def row_by_row(m: Material) -> Any:
    streams = ConvStreams(m)
    for position in range(LENGTH):
        streams.forward(Part(0, 0, position, position + 1), rows=2)
    return streams.rows(0, LENGTH)


@DTYPES
@pytest.mark.parametrize(("taps", "bias"), [(3, False), (4, True), (2, False), (1, True)])
def test_equals_the_convolution_over_the_whole_stream(dtype: Any, taps: int, bias: bool) -> None:
    m = material(dtype, taps, bias=bias)
    streams = ConvStreams(m)
    whole_prompt(streams)
    np.testing.assert_allclose(
        streams.rows(0, LENGTH).astype(np.float64),
        whole(m, 0),
        rtol=2e-6 if dtype is np.float32 else 2**-8,
        atol=1e-5,
    )


@pytest.fixture(scope="module")
def alone() -> dict[Any, Any]:
    return {dtype: row_by_row(material(dtype)) for dtype in (np.float32, BF16)}


QUICK = (whole_prompt, BY_THREE, BY_65, beside_another, rejected, lane_reused)
FORMS = [pytest.param(arrange, BF16, marks=[] if arrange in QUICK else pytest.mark.slow) for arrange in ARRANGEMENTS]
FORMS += [pytest.param(arrange, np.float32) for arrange in (whole_prompt, BY_THREE)]


@pytest.mark.parametrize(("arrange", "dtype"), FORMS)
def test_every_arrangement_gives_the_bits_of_single_rows(alone: Any, arrange: Any, dtype: Any) -> None:
    streams = ConvStreams(material(dtype))
    arrange(streams)
    differs = (bits(streams.rows(0, LENGTH)) != bits(alone[dtype])).any((1, 2))
    assert not differs.any(), f"position {differs.argmax()}"


@pytest.mark.parametrize(
    ("taps", "dtype"),
    [(4, BF16), (8, np.float32), pytest.param(MOST_TAPS, np.float32, marks=pytest.mark.slow)],
)
def test_other_lengths_of_kernel(taps: int, dtype: Any) -> None:
    m = material(dtype, taps)
    wanted = row_by_row(m)
    for arrange in (BY_THREE, BY_65, whole_prompt):
        streams = ConvStreams(m)
        arrange(streams)
        assert np.array_equal(bits(streams.rows(0, LENGTH)), bits(wanted)), arrange.__name__


@DTYPES
@pytest.mark.parametrize("shared", [1, 2, 3])
def test_resumed_from_pages_that_another_lane_filled(alone: Any, dtype: Any, shared: int) -> None:
    """The pages are shared and not written; nothing of the lane that filled them is left."""
    mine = [*range(1, 1 + shared), *range(20, 20 + PAGES - shared)]
    streams = ConvStreams(material(dtype), [range(1, 1 + PAGES), mine, [0] * PAGES, [0] * PAGES])
    start = shared * PAGE_ROWS
    streams.forward(Part(0, 0, 0, start + 30))
    ring, tails = streams.state
    streams.state = ring.at[0].set(jnp.nan), tails
    for stop in (start + 1, start + 2, start + 64, LENGTH):
        streams.forward(Part(0, 1, start, stop), rows=2)
        start = stop
    assert np.array_equal(bits(streams.rows(0, LENGTH)), bits(alone[dtype]))
    kept = np.asarray(streams.state[1])[1 : 1 + shared]
    assert np.array_equal(bits(kept), bits(np.asarray(tails)[1 : 1 + shared]))


def test_rows_that_are_not_finite_stay_alone(alone: Any) -> None:
    """NaN reaches the rows that sum over it, and no other, in the same forward and later."""
    m = material(np.float32)
    m.x[0, 70] = np.nan
    for arrange in (whole_prompt, BY_ONE, BY_65):
        streams = ConvStreams(m)
        arrange(streams)
        found = streams.rows(0, LENGTH)
        assert np.isnan(found).any(1).nonzero()[0].tolist() == [70, 71, 72]
        same = (bits(found) == bits(alone[np.float32])).all((1, 2))
        assert same.nonzero()[0].tolist() == [*range(70), *range(73, LENGTH)]


def test_the_state_is_written_in_place() -> None:
    """A copy of all lanes' and pages' state in every layer of every forward would cost more than the layer."""
    state = jnp.zeros((5, RING, 64)), jnp.zeros((500, 2, 64))
    zero = jnp.zeros(4, jnp.int32)

    def run(state: Any, x: Any, *rest: Any) -> Any:
        weight, place, table = rest
        return short_conv.short_conv((x, x), x, weight, None, state, place, table)

    arguments = (state, jnp.zeros((4, 64)), jnp.ones((64, 3)), (zero, zero), jnp.zeros((5, 8), jnp.int32))
    text = jax.jit(run, donate_argnums=0).lower(*arguments).compile().as_text()
    whole_state = ("f32[5,128,64]", "f32[500,2,64]")
    copies = [
        line for line in text.splitlines() if " copy(" in line and line.strip().split(" = ")[1].startswith(whole_state)
    ]
    assert copies == []


@pytest.mark.parametrize("start", [0, 1, 63, 100])
@pytest.mark.parametrize("rows", [1, 64, 128, 129, 300])
def test_no_two_rows_of_a_lane_share_a_place(start: int, rows: int) -> None:
    """The latest inputs are all kept; a short run of another lane stands before and behind."""
    position = np.concatenate([np.arange(5), start + np.arange(rows), np.arange(5)]).astype(np.int32)
    lane = np.repeat([1, 0, 2], [5, rows, 5]).astype(np.int32)
    in_ring, in_tail = (np.asarray(part) for part in own_places(jnp.asarray(lane), jnp.asarray(position), 2))
    tail = position % PAGE_ROWS >= PAGE_ROWS - 2
    assert np.array_equal(in_tail, np.where(tail, position % PAGE_ROWS - (PAGE_ROWS - 2), 2))
    kept = in_ring < RING
    assert len(set(zip(lane[kept], in_ring[kept], strict=True))) == kept.sum()
    latest = position > np.where(lane == 0, start + rows, 5) - 1 - RING
    assert np.array_equal(kept, latest & ~tail)
    assert np.array_equal(in_ring[kept], position[kept] % RING)


# Faults that the comparison must show.


SEEING = (whole_prompt, BY_65, beside_another)


def spoilt(monkeypatch: pytest.MonkeyPatch, name: str, fault: Any) -> set[Any]:
    """Which arrangements come out wrong with a faulty part."""
    monkeypatch.setattr(short_conv, name, fault)
    m = material(BF16)
    wanted, operator, wrong = whole(m, 0), compiled(), set()
    for arrange in SEEING:
        streams = ConvStreams(m, operator=operator)
        arrange(streams)
        found = streams.rows(0, LENGTH).astype(np.float64)
        if not np.allclose(found, wanted, rtol=2**-7, atol=1e-2):
            wrong.add(arrange)
    return wrong


def test_state_taken_one_row_late_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = short_conv._kept

    def late(distance: int, state: Any, place: Any, table: Any) -> Any:
        return right(distance + 1, state, place, table)

    wrong = spoilt(monkeypatch, "_kept", late)
    assert wrong == {*SEEING} - {whole_prompt}


def test_an_unguarded_position_before_the_first_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def unguarded(u: Any, kept: Any, distance: int, place: Any) -> Any:
        lane, position = place
        here = (short_conv._above(lane, distance, -1) == lane) & (
            short_conv._above(position, distance, -1) == position - distance
        )
        return jnp.where(here[:, None], short_conv._above(u, distance, 0), kept)

    assert spoilt(monkeypatch, "_earlier", unguarded) == {*SEEING}


def test_a_neighbours_rows_taken_for_ones_own_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def any_lane(u: Any, kept: Any, distance: int, place: Any) -> Any:
        lane, position = place
        here = short_conv._above(lane, distance, -1) >= 0
        found = jnp.where(here[:, None], short_conv._above(u, distance, 0), kept)
        return jnp.where((position >= distance)[:, None], found, 0)

    assert beside_another in spoilt(monkeypatch, "_earlier", any_lane)


def test_the_ring_holds_the_widest_window_behind_the_longest_kernel() -> None:
    widest = max(bucket.rows for plan in (row_invariant_plan(2), single_bucket_plan()) for bucket in plan.verify)
    assert widest + MOST_TAPS - 1 <= RING


def test_a_ring_of_one_page_is_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_conv, "RING", PAGE_ROWS)
    m = material(np.float32)
    streams = ConvStreams(m, operator=compiled())
    streams.forward(Part(0, 0, 0, 70))
    streams.forward(Part(0, 0, 70, 135), change=3)
    streams.forward(Part(0, 0, 70, 75))
    assert not np.allclose(streams.rows(0, 75), whole(m, 0)[:75], atol=1e-3)


def test_inputs_that_are_not_rounded_alike_are_seen(monkeypatch: pytest.MonkeyPatch, alone: Any) -> None:
    """The stored input is bfloat16, one of the same forward would be float32."""

    def unrounded(a: Any, b: Any) -> Any:
        return a.astype(jnp.float32) * b.astype(jnp.float32)

    written = short_conv._written
    monkeypatch.setattr(short_conv, "_rounded_product", unrounded)
    monkeypatch.setattr(short_conv, "_written", lambda u, state, *rest: written(u.astype(state[0].dtype), state, *rest))
    streams = ConvStreams(material(BF16), operator=compiled())
    whole_prompt(streams)
    assert not np.array_equal(bits(streams.rows(0, LENGTH)), bits(alone[BF16]))
