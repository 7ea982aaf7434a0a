"""The list of work that attention walks, and its reference."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.row_invariance import rows_of_normals
from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles, paged_attention
from tfjax.kernels.rope_write import Pools
from tfjax.kernels.window_attention import chunk_of, chunk_start, chunks_of, rows_of_block, window, window_attention


def test_chunks_follow_one_another() -> None:
    starts = [int(chunk_start(chunk)) for chunk in range(12)]
    assert starts == [0, 128, 256, 384, 512, 640, 768, 896, 1024, 1536, 2048, 2560]
    position = np.arange(2561)
    assert np.array_equal(chunk_of(jnp.asarray(position)), np.searchsorted(starts, position, side="right") - 1)
    for positions in (1, 128, 129, 1024, 1025, 1536, 1537, 131072):
        assert chunks_of(positions) == int(chunk_of(positions - 1)) + 1


@pytest.mark.parametrize(("group", "rows"), [(1, 64), (2, 32), (3, 16), (4, 16), (8, 8), (6, 8), (5, 0), (7, 0)])
def test_blocks_are_whole_runs_of_sixteen_heads(group: int, rows: int) -> None:
    assert rows_of_block(group) == rows


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
    shared = window(position, tiles, table, tile_rows=32, group=4)
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


def test_no_tile_is_no_work() -> None:
    position, tiles = tiles_of(rows=16)
    assert int(window(position, tiles, jnp.zeros((2, 4), jnp.int32), tile_rows=8, group=4).used) == 0


def test_the_reference_is_paged_attention() -> None:
    kv_heads, group, size, pages = 2, 2, 16, 4
    table = jnp.asarray(1 + np.random.default_rng(0).permutation(2 * pages).reshape(2, pages), jnp.int32)
    pools = Pools(*(jnp.asarray(rows_of_normals(i, 2 * pages + 1, kv_heads, PAGE_ROWS, size)) for i in (1, 2)))
    q = jnp.asarray(rows_of_normals(3, 8, kv_heads * group, size))
    position, tiles = tiles_of((0, 3, 1, 200), (3, 2, 0, 63), rows=8)
    shared = window(position, tiles, table, tile_rows=4, group=group)
    grouped = q.reshape(8, kv_heads, group, size).swapaxes(0, 1)
    found = window_attention(
        grouped, Pools(*(jnp.pad(x, ((3, 0), *[(0, 0)] * 3)) for x in pools)), shared, jnp.int32(3)
    )
    wanted = paged_attention(q, *pools, position, tiles, table, tile_rows=4)
    np.testing.assert_allclose(found[:5], wanted.reshape(8, -1)[:5], atol=2e-5)
