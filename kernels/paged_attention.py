"""Attention of flat rows over a paged key/value cache, one pass over fixed blocks of keys.

A row's result depends on its own position only: every row walks the same key blocks from position 0 with an online
softmax, and blocks past its position add exact zeros.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfjax.kernels.reduce import tree_sum

PAGE_ROWS = 64
"""Positions in one page of the cache."""

PAGES_PER_BLOCK = 2
"""Pages whose keys are scored together; part of the arithmetic, like the page size."""

BLOCK_KEYS = PAGE_ROWS * PAGES_PER_BLOCK
MASKED = -1e30


class Tiles(NamedTuple):
    """Rows grouped by lane: each tile is a run of up to `tile_rows` rows of one lane.

    Tiles cover the used rows in order and without gaps, so that what a short tile writes past its end is
    overwritten by the next one.

    Attributes:
        used: int32 [], how many tiles.
        start: int32 [tiles], first row of each tile.
        lane: int32 [tiles], whose pages the tile reads.
        last: int32 [tiles], the largest position in the tile.
    """

    used: jax.Array
    start: jax.Array
    lane: jax.Array
    last: jax.Array


def write_rows(
    keys: jax.Array, values: jax.Array, k: jax.Array, v: jax.Array, page: jax.Array, slot: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Store each row's key and value in its page.

    Rows that may not see a key mask its score, but a value that is not finite would reach them even at weight zero.
    So such a value is stored as zeros and its key as NaN, which only the rows that see it turn into NaN.

    Shapes: keys, values [P, K, PAGE_ROWS, H]; k, v [R, K, H]; page, slot int32 [R] -> keys, values.
    """
    sound = jnp.all(jnp.isfinite(v), -1, keepdims=True)
    k, v = jnp.where(sound, k, jnp.nan), jnp.where(sound, v, 0)
    return keys.at[page, :, slot].set(k), values.at[page, :, slot].set(v)


def paged_attention(
    q: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    position: jax.Array,
    tiles: Tiles,
    page_table: jax.Array,
    *,
    tile_rows: int,
) -> jax.Array:
    """Causal attention of every row to its lane's positions 0..position, in float32.

    Shapes: q [R, N, H]; keys, values [P, K, PAGE_ROWS, H]; position int32 [R]; page_table int32 [lanes, pages] with
    a whole number of key blocks -> [R, N, H] in the dtype of q. Rows in no tile come back with no meaning.
    """
    rows, heads, size = q.shape
    kv_heads = keys.shape[1]
    q = jnp.pad(q, ((0, tile_rows), (0, 0), (0, 0)))
    position = jnp.pad(position, (0, tile_rows))

    def one_tile(i: jax.Array, out: jax.Array) -> jax.Array:
        start = tiles.start[i]
        tile_q = jax.lax.dynamic_slice_in_dim(q, start, tile_rows)
        grouped = tile_q.reshape(tile_rows, kv_heads, heads // kv_heads, size).transpose(1, 0, 2, 3)
        attended = _attend(
            grouped.reshape(kv_heads, -1, size).astype(jnp.float32) * size**-0.5,
            keys,
            values,
            jnp.repeat(jax.lax.dynamic_slice_in_dim(position, start, tile_rows), heads // kv_heads),
            page_table[tiles.lane[i]],
            tiles.last[i],
        )
        attended = attended.reshape(kv_heads, tile_rows, heads // kv_heads, size).transpose(1, 0, 2, 3)
        return jax.lax.dynamic_update_slice_in_dim(out, attended.reshape(tile_rows, heads, size), start, 0)

    out = jax.lax.fori_loop(0, tiles.used, one_tile, jnp.zeros(q.shape, jnp.float32))
    attended: jax.Array = out[:rows].astype(q.dtype)
    return attended


def _attend(
    q: jax.Array, keys: jax.Array, values: jax.Array, position: jax.Array, pages: jax.Array, last: jax.Array
) -> jax.Array:
    """Online softmax over the key blocks up to position `last`.

    Shapes: q [K, M, H] scaled, position [M], pages [pages], last [] -> [K, M, H].
    """

    def block_of(pool: jax.Array, i: jax.Array) -> jax.Array:
        parts = [
            jax.lax.dynamic_index_in_dim(pool, pages[i * PAGES_PER_BLOCK + j], 0, keepdims=False)
            for j in range(PAGES_PER_BLOCK)
        ]
        return jnp.concatenate(parts, 1).astype(jnp.float32)

    def one_block(i: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        peak, total, acc = carry
        at = i * BLOCK_KEYS + jnp.arange(BLOCK_KEYS)
        score = jax.lax.dot_general(q, block_of(keys, i), (((2,), (2,)), ((0,), (0,))))
        score = jnp.where(at <= position[:, None], score, MASKED)
        new_peak = jnp.maximum(peak, score.max(-1, keepdims=True))
        # Without the barrier XLA recomputes exp inside the sum, vectorised differently for some row counts.
        weight = jax.lax.optimization_barrier(jnp.exp(score - new_peak))
        scale = jnp.exp(peak - new_peak)
        written = jnp.where((at <= last)[:, None], block_of(values, i), 0)  # what lies behind may be anything
        return new_peak, total * scale + tree_sum(weight), acc * scale + _mix(weight, written)

    flat = jnp.zeros((*q.shape[:2], 1), jnp.float32)
    blocks = last // BLOCK_KEYS + 1
    _, total, acc = jax.lax.fori_loop(0, blocks, one_block, (flat + MASKED, flat, jnp.zeros_like(q)))
    attended: jax.Array = acc / total
    return attended


def _mix(weight: jax.Array, values: jax.Array) -> jax.Array:
    """Weighted sums of a block's values, with the same bits for every number of rows.

    XLA on CPU multiplies by [T, H] in another order from 64 rows on, unless H is a multiple of 64; by [H, T] never,
    but that costs a transposition.

    Shapes: weight [K, M, T], values [K, T, H] -> [K, M, H].
    """
    if values.shape[-1] % 64 == 0:
        return jax.lax.dot_general(weight, values, (((2,), (1,)), ((0,), (0,))))
    values = jax.lax.optimization_barrier(jnp.swapaxes(values, 1, 2))
    return jax.lax.dot_general(weight, values, (((2,), (2,)), ((0,), (0,))))
