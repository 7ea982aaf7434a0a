"""The list of work that attention walks, and its reference."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.row_invariance import rows_of_normals
from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles, paged_attention
from tfjax.kernels.rope_write import Pools
from tfjax.kernels.window_attention import (
    BLOCK_ROWS,
    chunk_of,
    chunk_start,
    chunks_of,
    rows_of_block,
    window,
    window_attention,
)

type Array = NDArray[np.float32]

laid_out = jax.jit(window, static_argnames=("tile_rows", "group"))


def test_chunks_follow_one_another() -> None:
    starts = [int(chunk_start(chunk)) for chunk in range(12)]
    assert starts == [0, 128, 256, 384, 512, 640, 768, 896, 1024, 1536, 2048, 2560]
    position = np.arange(2561)
    assert np.array_equal(chunk_of(jnp.asarray(position)), np.searchsorted(starts, position, side="right") - 1)
    for positions in (1, 128, 129, 1024, 1025, 1536, 1537, 131072):
        assert chunks_of(positions) == int(chunk_of(positions - 1)) + 1


@pytest.mark.parametrize("group", range(1, 17))
def test_blocks_are_as_many_rows_as_their_heads_fit(group: int) -> None:
    rows = rows_of_block(group)
    assert rows.bit_count() == 1
    assert rows * group <= BLOCK_ROWS < 2 * rows * group
    assert {1: 64, 3: 16, 4: 16, 5: 8, 8: 8, 16: 4}.get(group, rows) == rows
    assert rows_of_block(BLOCK_ROWS + 1) == BLOCK_ROWS


def tiles_of(*runs: tuple[int, int, int, int], rows: int) -> tuple[jax.Array, Tiles]:
    """Positions and tiles of runs (first row, rows, lane, first position)."""
    position, start, lane, last = np.zeros((4, rows), np.int32)
    for i, (first, count, owner, at) in enumerate(runs):
        position[first : first + count] = at + np.arange(count)
        start[i], lane[i], last[i] = first, owner, at + count - 1
    return jnp.asarray(position), Tiles(jnp.int32(len(runs)), *(jnp.asarray(x) for x in (start, lane, last)))


def test_the_work_is_what_rows_see() -> None:
    table = jnp.arange(3 * 24, dtype=jnp.int32).reshape(3, 24)
    position, tiles = tiles_of((0, 20, 1, 1010), (20, 3, 0, 0), (23, 2, 2, 255), rows=32)
    position = position.at[25:].set(10**6)
    shared = laid_out(position, tiles, table, tile_rows=32, group=4)
    items = np.asarray(shared.items)[: int(shared.used)]
    blocks: dict[int, list[list[int]]] = {}
    for start, *rest in items.tolist():
        blocks.setdefault(start, []).append(rest)
    assert list(blocks) == [0, 16, 20, 23]
    assert [len(blocks[start]) for start in blocks] == [9, 9, 1, 3]
    assert blocks[0][-1] == [16, 8, 16, 1, 1025, 1, 0]
    assert blocks[16][-1] == [4, 8, 16, 1, 1029, 1, 0]
    assert blocks[20] == [[3, 0, 0, 1, 2, 0, 0]]
    # Tiles do not say how many rows the last one has: what follows it is padding and comes along.
    assert blocks[23] == [[9, 0, 0, 2, 256, 2, 0], [9, 1, 2, 2, 256, 2, 0], [9, 2, 4, 1, 256, 2, 0]]
    assert np.asarray(shared.block)[:25].tolist() == [0] * 16 + [16] * 4 + [20] * 3 + [23] * 2


MOST = 131_072
"""Keys that a row may see."""


def test_the_longest_context_is_walked_once_and_in_order() -> None:
    pages = MOST // PAGE_ROWS
    position, tiles = tiles_of((0, 1, 0, MOST - 1), (1, 2, 1, 0), rows=16)
    shared = laid_out(position, tiles, jnp.zeros((2, pages), jnp.int32), tile_rows=2, group=4)
    items = np.asarray(shared.items)[: int(shared.used)].astype(np.int64)
    far = items[items[:, 0] == 0]
    assert shared.items.shape == (16 * 262, 8)
    assert far[:, 2].tolist() == list(range(262)) == list(range(chunks_of(MOST)))
    assert far[:, 3].tolist() == [int(start) // PAGE_ROWS for start in chunk_start(jnp.arange(262))]
    assert np.array_equal(far[:-1, 3] + far[:-1, 4], far[1:, 3])
    assert far[-1, 3] + far[-1, 4] == pages
    assert items[items[:, 0] == 1].tolist() == [[1, 2, 0, 0, 1, 1, 1, 0]]


def test_the_work_of_a_stream_is_the_same_beside_others() -> None:
    table = jnp.zeros((3, 40), jnp.int32)

    def work(*runs: tuple[int, int, int, int], rows: int, tile_rows: int) -> list[list[int]]:
        position, tiles = tiles_of(*runs, rows=rows)
        shared = laid_out(position, tiles, table, tile_rows=tile_rows, group=4)
        items = np.asarray(shared.items)[: int(shared.used)]
        return [row[2:6] for row in items.tolist() if row[6] == 1]

    alone = work((0, 8, 1, 1800), rows=8, tile_rows=8)
    assert alone == work((0, 5, 0, 7), (5, 8, 1, 1800), (13, 1, 2, 2400), rows=16, tile_rows=8)
    assert [row[:3] for row in alone] == [row[:3] for row in work((0, 8, 1, 1800), (8, 8, 2, 0), rows=64, tile_rows=16)]


def paged(keys: Array, values: Array, seed: int) -> tuple[Pools, jax.Array]:
    """Contexts [lanes, T, K, H] in pages that are not in order; every other page holds NaN."""
    lanes, length, kv_heads, size = keys.shape
    pages = -(-length // PAGE_ROWS)
    table = 1 + np.random.default_rng(seed).permutation(2 * lanes * pages)[: lanes * pages].reshape(lanes, pages)
    pools = []
    for context in (keys, values):
        whole = np.full((lanes, pages * PAGE_ROWS, kv_heads, size), np.nan, np.float32)
        whole[:, :length] = context
        pool = np.full((2 * lanes * pages + 1, kv_heads, PAGE_ROWS, size), np.nan, np.float32)
        pool[table] = whole.reshape(lanes, pages, PAGE_ROWS, kv_heads, size).swapaxes(2, 3)
        pools.append(jnp.asarray(pool))
    return Pools(*pools), jnp.asarray(table, jnp.int32)


def dense(q: Array, keys: Array, values: Array) -> Array:
    """Attention of one row. Shapes: q [K, G, H]; keys, values [T, K, H] -> [K * G * H]."""
    score = np.einsum("kgh,tkh->kgt", q.astype(np.float64), keys.astype(np.float64)) * q.shape[-1] ** -0.5
    weight = np.exp(score - score.max(-1, keepdims=True))
    return np.einsum("kgt,tkh->kgh", weight / weight.sum(-1, keepdims=True), values.astype(np.float64)).ravel()


@pytest.mark.parametrize("group", [1, 5, 7, 16])
@pytest.mark.parametrize("size", [64, 128, 256])
def test_groups_and_sizes(group: int, size: int) -> None:
    keys, values = (rows_of_normals(seed, 1, 130, 2, size) for seed in (1, 2))
    q = rows_of_normals(3, 2, 4, group, size)
    pools, table = paged(keys, values, 0)
    position, tiles = tiles_of((0, 4, 0, 126), rows=4)
    shared = laid_out(position, tiles, table, tile_rows=4, group=group)
    found = window_attention(jnp.asarray(q), pools, shared, jnp.int32(0))
    wanted = [dense(q[:, row], keys[0, : 127 + row], values[0, : 127 + row]) for row in range(4)]
    np.testing.assert_allclose(found, np.stack(wanted), atol=2e-5)


def test_the_first_and_the_last_key_of_the_longest_context_count() -> None:
    keys, values = (0.1 * rows_of_normals(seed, 1, MOST, 1, 16) for seed in (1, 2))
    q = rows_of_normals(3, 1, 2, 1, 16)
    keys[0, [0, -1], 0] = 30 * q[0, 0, 0]
    pools, table = paged(keys, values, 0)
    position, tiles = tiles_of((0, 2, 0, MOST - 2), rows=2)
    shared = laid_out(position, tiles, table, tile_rows=2, group=1)
    found = window_attention(jnp.asarray(q), pools, shared, jnp.int32(0))
    wanted = [dense(q[:, row], keys[0, : MOST - 1 + row], values[0, : MOST - 1 + row]) for row in range(2)]
    np.testing.assert_allclose(found, np.stack(wanted), atol=2e-5)


BLOCKS = ((0, 5), (61, 1), (127, 16))
"""Context and rows of each stream's block."""


def blocks_attended(lanes: tuple[int, ...], *, tile_rows: int, rows: int) -> Array:
    """Rows of the blocks of some streams in one window, as many as `rows` with padding."""
    pools, table, q = block_material()
    position, start, lane, last = np.zeros((4, rows), np.int32)
    window_q = np.full((rows, *q[0].shape[1:]), np.nan, np.float32)
    at = tile = 0
    for stream in lanes:
        context, count = BLOCKS[stream]
        position[at : at + count] = context + count - 1
        window_q[at : at + count] = q[stream]
        for first in range(0, count, tile_rows):
            start[tile], lane[tile], last[tile] = at + first, stream, context + count - 1
            tile += 1
        at += count
    tiles = Tiles(jnp.int32(tile), *(jnp.asarray(x) for x in (start, lane, last)))
    shared = laid_out(jnp.asarray(position), tiles, table, tile_rows=tile_rows, group=2)
    return np.asarray(window_attention(jnp.asarray(window_q).swapaxes(0, 1), pools, shared, jnp.int32(0)))[:at]


def block_context() -> tuple[Array, Array]:
    keys, values = (rows_of_normals(seed, len(BLOCKS), 143, 2, 16) for seed in (1, 2))
    for lane, (context, count) in enumerate(BLOCKS):
        keys[lane, context + count :], values[lane, context + count :] = np.nan, np.nan
    return keys, values


def block_material() -> tuple[Pools, jax.Array, list[Array]]:
    pools, table = paged(*block_context(), 1)
    return pools, table, [rows_of_normals(5 + lane, count, 2, 2, 16) for lane, (_, count) in enumerate(BLOCKS)]


def test_rows_of_a_block_see_the_context_and_all_of_the_block() -> None:
    keys, values = block_context()
    q = block_material()[2]
    found = blocks_attended((0, 1, 2), tile_rows=16, rows=32)
    ends = [context + count for context, count in BLOCKS]
    wanted = [dense(row, keys[lane, :end], values[lane, :end]) for lane, end in enumerate(ends) for row in q[lane]]
    np.testing.assert_allclose(found, np.stack(wanted), atol=2e-5)


def test_a_block_is_the_same_alone_in_other_tiles_and_in_a_wider_window() -> None:
    whole = blocks_attended((0, 1, 2), tile_rows=16, rows=32)
    np.testing.assert_array_equal(blocks_attended((2,), tile_rows=16, rows=16), whole[6:])
    np.testing.assert_array_equal(blocks_attended((2, 0), tile_rows=4, rows=64)[:16], whole[6:])


def test_no_tile_is_no_work() -> None:
    position, tiles = tiles_of(rows=16)
    assert int(laid_out(position, tiles, jnp.zeros((2, 4), jnp.int32), tile_rows=8, group=4).used) == 0


def test_the_reference_is_paged_attention() -> None:
    kv_heads, group, size, pages = 2, 2, 16, 4
    table = jnp.asarray(1 + np.random.default_rng(0).permutation(2 * pages).reshape(2, pages), jnp.int32)
    pools = Pools(*(jnp.asarray(rows_of_normals(i, 2 * pages + 1, kv_heads, PAGE_ROWS, size)) for i in (1, 2)))
    q = jnp.asarray(rows_of_normals(3, 8, kv_heads * group, size))
    position, tiles = tiles_of((0, 3, 1, 200), (3, 2, 0, 63), rows=8)
    shared = laid_out(position, tiles, table, tile_rows=4, group=group)
    grouped = q.reshape(8, kv_heads, group, size).swapaxes(0, 1)
    found = window_attention(
        grouped, Pools(*(jnp.pad(x, ((3, 0), *[(0, 0)] * 3)) for x in pools)), shared, jnp.int32(3)
    )
    wanted = paged_attention(q, *pools, position, tiles, table, tile_rows=4)
    np.testing.assert_allclose(found[:5], wanted.reshape(8, -1)[:5], atol=2e-5)
