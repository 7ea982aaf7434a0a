"""Attention of flat rows over a paged key/value cache, one pass over fixed blocks of keys.

A row's result depends on its own position only: every row walks the same key blocks from position 0 with an online
softmax, and blocks past its position add exact zeros.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
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

ROWS_AT_ONCE, BLOCKS_AT_ONCE = 256, 8
"""Rows of the tiles, and key blocks of each, that a GPU attends to together."""

type Carry = tuple[jax.Array, jax.Array, jax.Array]
"""Of an online softmax, for each row: its largest score so far, and the sums of weights and weighted values."""

type Walk = Callable[[_Tile, Carry], Carry]


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
    rows = q.shape[0]
    q = jnp.pad(q, ((0, tile_rows), (0, 0), (0, 0)))
    position = jnp.pad(position, (0, tile_rows))
    out = jax.lax.platform_dependent(
        Operands(q, keys, values, position, tiles, page_table),
        cuda=functools.partial(tiles_together, tile_rows=tile_rows, at_once=max(1, ROWS_AT_ONCE // tile_rows)),
        default=functools.partial(tiles_in_turn, tile_rows=tile_rows),
    )
    attended: jax.Array = out[:rows].astype(q.dtype)
    return attended


class Operands(NamedTuple):
    """What attention reads, with shapes as in `paged_attention` but rows padded by a tile."""

    q: jax.Array
    keys: jax.Array
    values: jax.Array
    position: jax.Array
    tiles: Tiles
    page_table: jax.Array


def tiles_in_turn(operands: Operands, *, tile_rows: int) -> jax.Array:
    """One tile after another, each walking no more key blocks than it needs. Shape: float32 [R + tile_rows, N, H]."""
    q, keys, values, position, tiles, page_table = operands

    def one_tile(i: jax.Array, out: jax.Array) -> jax.Array:
        start = tiles.start[i]
        attended = _attend_tile(
            _blocks_in_turn,
            jax.lax.dynamic_slice_in_dim(q, start, tile_rows),
            keys,
            values,
            jax.lax.dynamic_slice_in_dim(position, start, tile_rows),
            page_table[tiles.lane[i]],
            tiles.last[i],
        )
        return jax.lax.dynamic_update_slice_in_dim(out, attended, start, 0)

    out: jax.Array = jax.lax.fori_loop(0, tiles.used, one_tile, jnp.zeros(q.shape, jnp.float32))
    return out


def tiles_together(operands: Operands, *, tile_rows: int, at_once: int) -> jax.Array:
    """Groups of `at_once` tiles, all walking as many key blocks as the longest of them needs.

    A GPU that walks tile after tile and block after block is idle between its many small kernels. Bits may differ from
    the other form's, so a device always takes the same one.
    """
    q, keys, values, position, tiles, page_table = operands

    def one_group(group: jax.Array, out: jax.Array) -> jax.Array:
        number = jnp.minimum(group * at_once + jnp.arange(at_once), tiles.used - 1)
        start = tiles.start[number]
        end = jnp.where(number + 1 < tiles.used, tiles.start[number + 1], start + tile_rows)
        row = start[:, None] + jnp.arange(tile_rows)
        attend = functools.partial(_attend_tile, _blocks_together)
        attended = jax.vmap(attend, (0, None, None, 0, 0, 0))(
            q[row], keys, values, position[row], page_table[tiles.lane[number]], tiles.last[number]
        )
        own = jnp.where(row < end[:, None], row, len(out))
        return out.at[own].set(attended, mode="drop")

    groups = (tiles.used + at_once - 1) // at_once
    out: jax.Array = jax.lax.fori_loop(0, groups, one_group, jnp.zeros(q.shape, jnp.float32))
    return out


def _attend_tile(
    walk: Walk,
    q: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    position: jax.Array,
    pages: jax.Array,
    last: jax.Array,
) -> jax.Array:
    """Attention of rows of one lane. Shapes: q [T, N, H]; position [T]; pages [pages]; last [] -> [T, N, H]."""
    rows, heads, size = q.shape
    kv_heads = keys.shape[1]
    grouped = q.reshape(rows, kv_heads, heads // kv_heads, size).transpose(1, 0, 2, 3)
    scaled = grouped.reshape(kv_heads, -1, size).astype(jnp.float32) * size**-0.5
    tile = _Tile(scaled, keys, values, jnp.repeat(position, heads // kv_heads), pages, last)
    flat = jnp.zeros((kv_heads, rows * heads // kv_heads, 1), jnp.float32)
    _, total, acc = walk(tile, (flat + MASKED, flat, jnp.zeros_like(scaled)))
    attended = (acc / total).reshape(kv_heads, rows, heads // kv_heads, size).transpose(1, 0, 2, 3)
    return attended.reshape(rows, heads, size)


class _Tile(NamedTuple):
    """What is read of a tile, with query heads as rows.

    Shapes: q [K, M, H] scaled, pools [P, K, PAGE_ROWS, H], position [M], pages [pages], last [].
    """

    q: jax.Array
    keys: jax.Array
    values: jax.Array
    position: jax.Array
    pages: jax.Array
    last: jax.Array

    @property
    def blocks(self) -> jax.Array:
        return self.last // BLOCK_KEYS + 1

    def scores(self, block: jax.Array) -> jax.Array:
        """Of every row against the block's keys. Shape: [K, M, BLOCK_KEYS]."""
        score = jax.lax.dot_general(self.q, self._block_of(self.keys, block), (((2,), (2,)), ((0,), (0,))))
        return jnp.where(_places(block) <= self.position[:, None], score, MASKED)

    def sums(self, block: jax.Array, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Of the weights [K, M, BLOCK_KEYS], and of the values by them. Shapes: [K, M, 1], [K, M, H]."""
        # What lies behind the last position may be anything.
        written = jnp.where((_places(block) <= self.last)[:, None], self._block_of(self.values, block), 0)
        return tree_sum(weight), _mix(weight, written)

    def _block_of(self, pool: jax.Array, block: jax.Array) -> jax.Array:
        parts = [
            jax.lax.dynamic_index_in_dim(pool, self.pages[block * PAGES_PER_BLOCK + j], 0, keepdims=False)
            for j in range(PAGES_PER_BLOCK)
        ]
        return jnp.concatenate(parts, 1).astype(jnp.float32)


def _places(block: jax.Array) -> jax.Array:
    return block * BLOCK_KEYS + jnp.arange(BLOCK_KEYS)


def _blocks_in_turn(tile: _Tile, start: Carry) -> Carry:
    """Online softmax over the key blocks up to the tile's last position."""

    def one_block(block: jax.Array, carry: Carry) -> Carry:
        peak, total, acc = carry
        score = tile.scores(block)
        new_peak = jnp.maximum(peak, score.max(-1, keepdims=True))
        # Without the barrier XLA recomputes exp inside the sum, vectorised differently for some row counts.
        weight = jax.lax.optimization_barrier(jnp.exp(score - new_peak))
        scale = jnp.exp(peak - new_peak)
        added, mixed = tile.sums(block, weight)
        return new_peak, total * scale + added, acc * scale + mixed

    end: Carry = jax.lax.fori_loop(0, tile.blocks, one_block, start)
    return end


def _blocks_together(tile: _Tile, start: Carry) -> Carry:
    """The same, with the products of BLOCKS_AT_ONCE blocks in one kernel."""

    def some_blocks(group: jax.Array, carry: Carry) -> Carry:
        peak, total, acc = carry
        block = group * BLOCKS_AT_ONCE + jnp.arange(BLOCKS_AT_ONCE)
        score = jax.vmap(tile.scores)(block)
        peaks = jnp.maximum(peak, jax.lax.cummax(score.max(-1, keepdims=True)))
        weight = jax.lax.optimization_barrier(jnp.exp(score - peaks))
        scales = jnp.exp(jnp.concatenate([peak[None], peaks[:-1]]) - peaks)
        added, mixed = jax.vmap(tile.sums)(block, weight)
        for i in range(BLOCKS_AT_ONCE):
            total, acc = total * scales[i] + added[i], acc * scales[i] + mixed[i]
        return peaks[-1], total, acc

    groups = (tile.blocks + BLOCKS_AT_ONCE - 1) // BLOCKS_AT_ONCE
    end: Carry = jax.lax.fori_loop(0, groups, some_blocks, start)
    return end


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
