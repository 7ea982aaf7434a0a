from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.row_invariance import assert_row_invariant, bits, rows_of_normals, violation
from tfjax.kernels.paged_attention import (
    BLOCK_KEYS,
    PAGE_ROWS,
    Operands,
    Tiles,
    _mix,
    paged_attention,
    tiles_in_turn,
    tiles_together,
    write_rows,
)

LANES, PAGES_PER_LANE = 3, 4
CONTEXT = PAGES_PER_LANE * PAGE_ROWS
BORDERS = (0, 1, 62, 63, 64, 65, 126, 127, 128, 129, 191, 192, 200, CONTEXT - 1)
PAGE_TABLE = np.array([[3, 7, 1, 12], [5, 2, 9, 10], [11, 4, 6, 8], [0, 0, 0, 0]], np.int32)


@dataclass(frozen=True, slots=True)
class Shape:
    """Query heads, kv heads, head size, dtype of cache and queries."""

    heads: int
    kv_heads: int
    size: int
    dtype: Any = np.float32


SHAPES = {
    "gqa": Shape(6, 2, 16),
    "gqa bf16": Shape(6, 2, 16, ml_dtypes.bfloat16),
    "one query head per kv head": Shape(3, 3, 16),
    "mqa": Shape(5, 1, 8),
    "smollm2": Shape(9, 3, 64, ml_dtypes.bfloat16),
}


@functools.partial(jax.jit, static_argnames="tile_rows")
def attend(q: Any, keys: Any, values: Any, position: Any, tiles: Tiles, table: Any, *, tile_rows: int) -> jax.Array:
    return paged_attention(q, keys, values, position, tiles, table, tile_rows=tile_rows)


def pools(shape: Shape, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Keys and values of every page, the scratch page 0 included."""
    size = (13, shape.kv_heads, PAGE_ROWS, shape.size)
    return rows_of_normals(seed, *size, dtype=shape.dtype), rows_of_normals(seed + 1, *size, dtype=shape.dtype)


def tiles_of(lane: NDArray[np.int32], position: NDArray[np.int32], tile_rows: int) -> Tiles:
    """Cuts rows, in order, into tiles of one lane each."""
    start = [0]
    for row in range(1, len(lane)):
        if lane[row] != lane[row - 1] or row - start[-1] == tile_rows:
            start.append(row)
    ends = [*start[1:], len(lane)]
    last = [position[a:b].max() for a, b in zip(start, ends, strict=True)]
    room = np.zeros(len(lane) - len(start), np.int32)
    arrays = [np.concatenate([np.array(x, np.int32), room]) for x in (start, lane[start], last)]
    return Tiles(np.int32(len(start)), *arrays)


def attention(shape: Shape, tile_rows: int, cache: tuple[Any, Any] | None = None) -> Callable[..., Any]:
    """The operator over rows (q, lane, position) that the harness wants."""
    keys, values = cache or pools(shape)

    def operator(q: Any, lane: Any, position: Any) -> Any:
        tiles = tiles_of(lane, position, tile_rows)
        return attend(q, keys, values, position, tiles, PAGE_TABLE, tile_rows=tile_rows)

    return operator


def reference(shape: Shape, q: Any, lane: Any, position: Any, cache: tuple[Any, Any] | None = None) -> Any:
    """Softmax over positions 0..position of the row's lane, in float64."""
    keys, values = (
        np.asarray(pool, np.float64)[PAGE_TABLE]
        .transpose(0, 1, 3, 2, 4)
        .reshape(LANES + 1, CONTEXT, shape.kv_heads, -1)
        for pool in cache or pools(shape)
    )
    out = np.zeros(q.shape)
    for row in range(len(q)):
        seen = slice(0, position[row] + 1)
        for head in range(shape.heads):
            group = head // (shape.heads // shape.kv_heads)
            score = keys[lane[row], seen, group] @ q[row, head].astype(np.float64) / np.sqrt(shape.size)
            weight = np.exp(score - score.max())
            out[row, head] = weight @ values[lane[row], seen, group] / weight.sum()
    return out


def border_rows(shape: Shape, rows: int = len(BORDERS) * LANES) -> tuple[Any, Any, Any]:
    """(q, lane, position): every lane's rows at the borders of pages and blocks, lane by lane."""
    q = rows_of_normals(7, rows, shape.heads, shape.size, dtype=shape.dtype)
    lane = np.repeat(np.arange(LANES, dtype=np.int32), rows // LANES)
    position = np.resize(np.array(BORDERS, np.int32), rows)
    return q, lane, position


FORMS = [
    pytest.param(shape, tile_rows, id=f"{name}, tiles of {tile_rows}", marks=[] if quick else pytest.mark.slow)
    for name, shape in SHAPES.items()
    for tile_rows in (2, 4, 8, 128)
    for quick in [(name, tile_rows) in {("gqa", 2), ("smollm2", 4), ("mqa", 128), ("one query head per kv head", 2)}]
]


@pytest.mark.parametrize(("shape", "tile_rows"), FORMS)
def test_equals_the_reference(shape: Shape, tile_rows: int) -> None:
    q, lane, position = border_rows(shape)
    found = np.asarray(attention(shape, tile_rows)(q, lane, position))
    assert found.dtype == shape.dtype
    tolerance = 1e-5 if shape.dtype == np.float32 else 2e-2
    np.testing.assert_allclose(found.astype(np.float64), reference(shape, q, lane, position), atol=tolerance)


def off_by_one(step: int) -> Callable[..., Any]:
    whole = attention(SHAPES["gqa"], 4)
    return lambda q, lane, position: whole(q, lane, np.clip(position + step, 0, CONTEXT - 1).astype(np.int32))


def other_lane(q: Any, lane: Any, position: Any) -> Any:
    return attention(SHAPES["gqa"], 4)(q, (lane + 1) % LANES, position)


def unscaled(q: Any, lane: Any, position: Any) -> Any:
    return attention(SHAPES["gqa"], 4)(q * 4, lane, position)


@pytest.mark.parametrize("wrong", [off_by_one(1), off_by_one(-1), other_lane, unscaled])
def test_the_reference_finds_wrong_attention(wrong: Callable[..., Any]) -> None:
    rows = border_rows(SHAPES["gqa"])
    assert np.abs(np.asarray(wrong(*rows)) - reference(SHAPES["gqa"], *rows)).max() > 1e-2


@pytest.mark.parametrize(("shape", "tile_rows"), FORMS)
def test_rows_are_invariant(shape: Shape, tile_rows: int) -> None:
    assert_row_invariant(attention(shape, tile_rows), *border_rows(shape), counts=(1, 2, 17, 42))


@pytest.mark.slow
@pytest.mark.parametrize("tile_rows", [2, 4, 8, 128])
def test_rows_of_every_count_are_invariant(tile_rows: int) -> None:
    assert_row_invariant(attention(SHAPES["gqa"], tile_rows), *border_rows(SHAPES["gqa"], 129))


@pytest.mark.parametrize(
    "shape", [pytest.param(x, id=name, marks=[] if name == "gqa" else pytest.mark.slow) for name, x in SHAPES.items()]
)
def test_tile_sizes_give_equal_bits(shape: Shape) -> None:
    rows = border_rows(shape)
    outputs = [bits(attention(shape, tile_rows)(*rows)) for tile_rows in (2, 4, 8, 128)]
    assert all(np.array_equal(outputs[0], other) for other in outputs[1:])


@pytest.mark.parametrize("size", [16, 32, 48, 64, 80, 128])
def test_weighted_sums_are_invariant(size: int) -> None:
    """Head sizes that are no multiple of 64 need another form of the product from 64 rows on."""
    rng = np.random.default_rng(0)
    weight = rng.random((2, 384, BLOCK_KEYS), np.float32)
    values = rng.standard_normal((2, BLOCK_KEYS, size), np.float32)
    mix = jax.jit(_mix)
    few = bits(mix(weight[:, :6], values))
    for rows in (9, 12, 24, 64, 96, 384):
        assert np.array_equal(bits(mix(weight[:, :rows], values))[:, :6], few), rows


@jax.jit
def whole_softmax(q: Any, k: Any, v: Any, position: Any) -> Any:
    score = jnp.einsum("rkgh,rtkh->rkgt", q.reshape(-1, 2, 3, 16), k) / 4
    score = jnp.where(jnp.arange(CONTEXT) <= position[:, None, None, None], score, -1e30)
    return jnp.einsum("rkgt,rtkh->rkgh", jax.nn.softmax(score, -1), v)


def sums_by_xla(q: Any, lane: Any, position: Any) -> Any:
    """A whole softmax by XLA's own reductions and products."""
    k, v = (
        np.asarray(pool)[PAGE_TABLE[lane]].transpose(0, 1, 3, 2, 4).reshape(len(q), CONTEXT, 2, 16)
        for pool in pools(SHAPES["gqa"])
    )
    return whole_softmax(q, k, v, position)


def scores_a_stale_key(q: Any, lane: Any, position: Any) -> Any:
    """Every row of a tile sees up to the tile's last position."""
    tiles = tiles_of(lane, position, 4)
    used = int(tiles.used)
    last = np.repeat(tiles.last[:used], np.diff([*tiles.start[:used], len(lane)]))
    return attention(SHAPES["gqa"], 4)(q, lane, last.astype(np.int32))


@pytest.mark.parametrize("operator", [sums_by_xla, scores_a_stale_key])
def test_the_harness_finds_attention_that_depends_on_other_rows(operator: Callable[..., Any]) -> None:
    assert violation(operator, *border_rows(SHAPES["gqa"]), counts=(1, 2, 17)) is not None


def unused_filled(shape: Shape, ends: Sequence[int], filler: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Pools where all that no row at or before each lane's end may see holds `filler`, the scratch page too."""
    keys, values = pools(shape)
    for pool in (keys, values):
        unused = np.ones((len(pool), PAGE_ROWS), bool)
        for lane, end in enumerate(ends):
            for position in range(end + 1):
                unused[PAGE_TABLE[lane, position // PAGE_ROWS], position % PAGE_ROWS] = False
        pool.transpose(0, 2, 1, 3)[unused] = filler
    return keys, values


@pytest.mark.parametrize("shape", [SHAPES["gqa"], SHAPES["gqa bf16"]], ids=["f32", "bf16"])
@pytest.mark.parametrize("filler", [np.nan, np.inf, 3e38])
@pytest.mark.parametrize("tile_rows", [2, 8])
def test_unused_places_are_not_seen(shape: Shape, filler: float, tile_rows: int) -> None:
    """Also where a later row of the same tile makes it walk further blocks."""
    for ends in ([0, 62, 63], [64, 126, 127], [128, 129, 200]):
        lane = np.repeat(np.arange(LANES, dtype=np.int32), 3)
        position = np.array([[max(0, end - 2), max(0, end - 1), end] for end in ends], np.int32).ravel()
        q = rows_of_normals(8, 9, shape.heads, shape.size, dtype=shape.dtype)
        clean = attention(shape, tile_rows)(q, lane, position)
        filled = attention(shape, tile_rows, unused_filled(shape, ends, filler))(q, lane, position)
        assert np.array_equal(bits(filled), bits(clean))


@pytest.mark.parametrize("bad", ["key", "value"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_reaches_only_those_that_see_it(bad: str, value: float) -> None:
    """A draft with broken numbers stands in the same tile as the rows before it."""
    shape, at = SHAPES["gqa"], np.arange(60, 68, dtype=np.int32)
    lane = np.zeros(8, np.int32)
    q, k, v = (rows_of_normals(seed, 8, heads, 16) for seed, heads in ((9, 6), (10, 2), (11, 2)))
    page, slot = PAGE_TABLE[0, at // PAGE_ROWS], at % PAGE_ROWS
    clean = write_rows(*map(jnp.asarray, pools(shape)), k, v, page, slot)
    (k if bad == "key" else v)[5, 1, 3] = value
    broken = write_rows(*map(jnp.asarray, pools(shape)), k, v, page, slot)
    found = np.asarray(attention(shape, 8, broken)(q, lane, at))
    wanted = np.asarray(attention(shape, 8, clean)(q, lane, at))
    assert np.array_equal(bits(found[:5]), bits(wanted[:5]))
    if np.isnan(value) or bad == "value":
        assert np.isnan(found[5:, 3:]).all()  # the query heads of kv head 1
    assert np.array_equal(bits(found[:, :3]), bits(wanted[:, :3]))


def test_rows_are_written_to_their_places_and_nowhere_else() -> None:
    shape = SHAPES["gqa"]
    keys, values = map(jnp.asarray, pools(shape))
    k, v = (rows_of_normals(seed, 3, 2, 16) for seed in (12, 13))
    page, slot = np.array([4, 4, 9]), np.array([63, 0, 17])
    new_keys, new_values = write_rows(keys, values, k, v, page, slot)
    for old, new, rows in ((keys, new_keys, k), (values, new_values, v)):
        wanted = np.asarray(old).copy()
        for row in range(3):
            wanted[page[row], :, slot[row]] = rows[row]
        assert np.array_equal(bits(new), bits(wanted))


def test_overhanging_tiles_do_not_overwrite_the_next_lanes_rows() -> None:
    """Tiles shorter than tile_rows write past their end; the next tile has to put that right."""
    shape = SHAPES["gqa"]
    q = rows_of_normals(14, 7, 6, 16)
    lane = np.array([0, 1, 1, 1, 2, 0, 0], np.int32)
    position = np.array([70, 3, 4, 5, 130, 0, 1], np.int32)
    np.testing.assert_allclose(attention(shape, 8)(q, lane, position), reference(shape, q, lane, position), atol=1e-5)


def padded(q: Any, keys: Any, values: Any, position: Any, tiles: Tiles, tile_rows: int) -> Operands:
    rows = (0, tile_rows)
    return Operands(np.pad(q, (rows, (0, 0), (0, 0))), keys, values, np.pad(position, rows), tiles, PAGE_TABLE)


@pytest.mark.parametrize("at_once", [1, 3, 64])
@pytest.mark.parametrize("tile_rows", [1, 4, 16])
@pytest.mark.parametrize("name", ["gqa", "smollm2"])
def test_tiles_together_give_what_tiles_in_turn_do(name: str, tile_rows: int, at_once: int) -> None:
    """Short tiles in every place, groups that are not full, and unused places that hold anything."""
    shape = SHAPES[name]
    lane = np.repeat(np.array([0, 1, 0, 2, 1, 2], np.int32), [5, 1, 16, 2, 3, 7])
    position = np.concatenate(
        [np.arange(end - rows + 1, end + 1) for end, rows in ((4, 5), (200, 1), (128, 16), (64, 2), (203, 3), (70, 7))]
    ).astype(np.int32)
    q = rows_of_normals(15, len(lane), shape.heads, shape.size, dtype=shape.dtype)
    keys, values = unused_filled(shape, [128, 203, 70], np.nan)
    tiles = tiles_of(lane, position, tile_rows)
    operands = padded(q, keys, values, position, tiles, tile_rows)
    in_turn = jax.jit(functools.partial(tiles_in_turn, tile_rows=tile_rows))(operands)
    together = jax.jit(functools.partial(tiles_together, tile_rows=tile_rows, at_once=at_once))(operands)
    np.testing.assert_allclose(together[: len(q)], in_turn[: len(q)], atol=1e-6, rtol=0)


def test_more_blocks_than_walk_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfjax.kernels.paged_attention.BLOCKS_AT_ONCE", 1)
    shape = SHAPES["gqa"]
    q, lane, position = border_rows(shape)
    tiles = tiles_of(lane, position, 16)
    operands = padded(q, *pools(shape), position, tiles, 16)
    found = jax.jit(functools.partial(tiles_together, tile_rows=16, at_once=5))(operands)
    np.testing.assert_allclose(found[: len(q)], reference(shape, q, lane, position), atol=1e-5)


def test_block_is_whole_pages() -> None:
    assert BLOCK_KEYS % PAGE_ROWS == 0
    assert CONTEXT % BLOCK_KEYS == 0
