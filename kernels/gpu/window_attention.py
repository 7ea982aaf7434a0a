"""Window attention in two kernels: online softmax of each (block of rows, chunk of keys), then an ordered merge.

The first walks a list of work that holds only the chunks that rows see, so that its time follows the contexts and not
the size of the page table. Scores are kept in units of log2.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.gpu.launch import PLAIN, Grid, Launch, launch, scalar
from tfjax.kernels.gpu.page_products import STAGES, Memory, block_memory, clear_behind, mixed_values, scores
from tfjax.kernels.gpu.tiles import heads_layout, put
from tfjax.kernels.paged_attention import MASKED, PAGE_ROWS
from tfjax.kernels.rope_write import Pools
from tfjax.kernels.routes import Unsupported
from tfjax.kernels.window_attention import (
    BLOCK_ROWS,
    LONG_KEYS,
    SHORT_CHUNKS,
    SHORT_KEYS,
    Window,
    chunks_of,
    spare_rows,
)

BF16 = jnp.bfloat16
WORKERS = 264
"""Blocks that share the list of work: two for each processor of an H200."""

SIZES = (64, 128, 256)
"""Of heads."""

MERGED_TOGETHER = 8
"""Chunks whose partial results are read before the first is merged."""


class Partial(NamedTuple):
    """Unfinished softmax of query heads over some keys: largest score, sum of weights, weighted values."""

    peak: Any
    total: Any
    mixed: Any


def window_attention(
    q: jax.Array, pools: Pools, shared: Window, first_page: jax.Array, *, how: Launch = PLAIN
) -> jax.Array:
    """The device route of `tfjax.kernels.window_attention.window_attention`."""
    kv_heads, _, group, size = q.shape
    if size not in SIZES or group > BLOCK_ROWS or q.dtype != BF16 or pools.keys.dtype != BF16:
        raise Unsupported(
            f"{group} query heads of {size} a key head in {q.dtype}; the device route takes groups of up to "
            f"{BLOCK_ROWS} heads of {SIZES} numbers in bfloat16, as a block's shared memory holds no longer ones; use "
            "the reference route"
        )
    chunks = chunks_of(shared.page_table.shape[1] * PAGE_ROWS)
    rows = len(shared.position)
    flat = q.reshape(kv_heads, -1, size)
    missing = (rows + spare_rows(group)) * group - flat.shape[1]
    flat = jnp.pad(flat, ((0, 0), (0, max(0, missing)), (0, 0)))
    f32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    workers = max(1, min(len(shared.items), WORKERS // kv_heads))
    partial, _ = launch(
        functools.partial(_chunks, group=group, workers=workers, interpreted=how.interpret),
        Grid((("head", kv_heads), ("worker", workers)), block_memory(size), approximate=True),
        [f32((chunks, kv_heads, rows, BLOCK_ROWS))] * 2 + [f32((chunks, kv_heads, rows * group, size))],
        [
            scalar(first_page),
            scalar(shared.used),
            shared.items,
            shared.page_table,
            shared.seen,
            flat,
            pools.keys,
            pools.values,
        ],
        name=f"attention_{group}x{size}",
        how=how,
    )
    unit = next(unit for unit in (4, 2, 1) if group % unit == 0)
    (out,), _ = launch(
        functools.partial(_merge, group=group, unit=unit),
        Grid((("row", rows), ("head", kv_heads), ("unit", group // unit)), approximate=True),
        [jax.ShapeDtypeStruct((rows, kv_heads * group, size), q.dtype)],
        [shared.position, shared.block, *partial],
        name=f"merge_{group}x{size}",
        how=how,
    )
    return out.reshape(rows, -1)


class _Item(NamedTuple):
    """One (block, chunk) pair; the fields of an item of work."""

    start: Any
    rows: Any
    chunk: Any
    page: Any
    pages: Any
    last: Any
    lane: Any


def _chunks(
    first_page_ref: Any,
    used_ref: Any,
    items_ref: Any,
    table_ref: Any,
    seen_ref: Any,
    q_ref: Any,
    keys_ref: Any,
    values_ref: Any,
    peak_ref: Any,
    total_ref: Any,
    mixed_ref: Any,
    *scratch: Any,
    group: int,
    workers: int,
    interpreted: bool,
) -> None:
    """Every `workers`-th item of the list, for one key head."""
    memory = Memory(*scratch)
    head, worker = lax.axis_index("head"), lax.axis_index("worker")

    def one_item(turn: Any, _: None) -> None:
        number = worker + turn * workers
        item = _Item(*(items_ref[number, field] for field in range(len(_Item._fields))))
        first = item.start * group

        def fetch(page: Any) -> None:
            slot = lax.rem(page, jnp.int32(STAGES))
            where = table_ref[item.lane, item.page + page] + first_page_ref[0]
            plgpu.copy_gmem_to_smem(keys_ref.at[where, head], memory.keys.at[slot], memory.keys_ready.at[slot])
            plgpu.copy_gmem_to_smem(values_ref.at[where, head], memory.values.at[slot], memory.values_ready.at[slot])

        for page in range(STAGES):
            pl.when(page < item.pages)(functools.partial(fetch, jnp.int32(page)))
        # Blocks begin at any row, so that the copy engine, which moves whole tiles, cannot bring the queries.
        queries = plgpu.load(q_ref.at[head, pl.ds(first, BLOCK_ROWS)], layout=plgpu.Layout.WGMMA, optimized=False)
        memory.q[...] = queries
        plgpu.commit_smem()
        seen = plgpu.load(seen_ref.at[pl.ds(first, BLOCK_ROWS)], layout=plgpu.Layout.WGMMA.reduce(1), optimized=False)
        found = _walk(memory, item, seen, fetch, interpreted)
        put(peak_ref.at[item.chunk, head, item.start], found.peak)
        put(total_ref.at[item.chunk, head, item.start], found.total)
        for column in range(0, memory.q.shape[1], memory.out.shape[1]):
            columns = slice(column, column + memory.out.shape[1])
            _store(memory.out, found.mixed[:, columns], mixed_ref.at[item.chunk, head, :, columns], item, group)

    lax.fori_loop(0, (used_ref[0] - worker + workers - 1) // workers, one_item, None)


def _store(tile: Any, values: Any, out_ref: Any, item: _Item, group: int) -> None:
    """Store the rows that are the item's own. Returns when the tile may be written again."""
    tile[...] = values
    plgpu.commit_smem()

    def store(row: Any, _: None) -> None:
        at = out_ref.at[pl.ds((item.start + row) * group, group)]
        plgpu.copy_smem_to_gmem(tile.at[pl.ds(row * group, group)], at)

    lax.fori_loop(0, item.rows, store, None)
    plgpu.wait_smem_to_gmem(0)


def _walk(memory: Memory, item: _Item, seen: Any, fetch: Any, interpreted: bool) -> Partial:
    """Online softmax over the pages of an item."""
    size = memory.q.shape[1]
    by_row = plgpu.Layout.WGMMA.reduce(1)
    scale = size**-0.5 * math.log2(math.e)

    def one_page(page: Any, carry: Partial) -> Partial:
        slot = lax.rem(page, jnp.int32(STAGES))
        key_tile, value_tile = memory.keys.at[slot], memory.values.at[slot]
        plgpu.barrier_wait(memory.keys_ready.at[slot])
        first = (item.page + page) * PAGE_ROWS
        score = scores(memory.q, key_tile) * scale
        place = plgpu.broadcasted_iota(jnp.int32, score.shape, 1, layout=plgpu.Layout.WGMMA) + first
        score = jnp.where(place <= lax.broadcast_in_dim(seen, score.shape, (0,)), score, MASKED)
        peak = jnp.maximum(carry.peak, score.max(axis=1))
        weight = jnp.exp2(score - lax.broadcast_in_dim(peak, score.shape, (0,)))
        shrunk = jnp.exp2(carry.peak - peak)
        total = carry.total * shrunk + weight.sum(axis=1)
        mixed = carry.mixed * lax.broadcast_in_dim(shrunk, carry.mixed.shape, (0,))
        plgpu.barrier_wait(memory.values_ready.at[slot])
        # What lies behind the last position may be anything, and zero times that may not be zero.
        pl.when(first + PAGE_ROWS > item.last + 1)(functools.partial(clear_behind, value_tile, item.last - first))
        mixed = mixed_values(mixed, weight.astype(BF16), value_tile, memory.weight, interpreted)
        pl.when(page + STAGES < item.pages)(functools.partial(fetch, page + STAGES))
        return Partial(peak, total, mixed)

    start = Partial(
        plgpu.layout_cast(jnp.full((BLOCK_ROWS,), MASKED, jnp.float32), by_row),
        plgpu.layout_cast(jnp.zeros((BLOCK_ROWS,), jnp.float32), by_row),
        plgpu.layout_cast(jnp.zeros((BLOCK_ROWS, size), jnp.float32), plgpu.Layout.WGMMA),
    )
    return Partial(*lax.fori_loop(0, item.pages, one_page, start))


def merged(before: Partial, chunk: Partial, live: Any) -> Partial:
    """Two partial results as one. Every chunk is merged by this, in ascending order.

    `live` is 1, or 0 for a chunk that was merged before and now changes nothing.
    """
    peak = jnp.maximum(before.peak, chunk.peak)
    shrunk, grown = jnp.exp2(before.peak - peak), jnp.exp2(chunk.peak - peak) * live

    def each(x: Any) -> Any:
        return lax.broadcast_in_dim(x, before.mixed.shape, (0,)) if jnp.ndim(x) else x

    return Partial(
        peak,
        before.total * shrunk + chunk.total * grown,
        before.mixed * each(shrunk) + chunk.mixed * each(grown),
    )


def _merge(
    position_ref: Any,
    block_ref: Any,
    peak_ref: Any,
    total_ref: Any,
    mixed_ref: Any,
    out_ref: Any,
    *,
    group: int,
    unit: int,
) -> None:
    """A row's chunks for `unit` query heads."""
    row, head = lax.axis_index("row"), lax.axis_index("head")
    within = lax.axis_index("unit") * unit
    size, chunks = mixed_ref.shape[-1], mixed_ref.shape[0]
    layout = heads_layout(unit, size)
    position, block = position_ref[row], block_ref[row]
    edge = SHORT_KEYS * SHORT_CHUNKS
    last = jnp.where(position < edge, position // SHORT_KEYS, SHORT_CHUNKS + (position - edge) // LONG_KEYS)
    last = jnp.minimum(last, chunks - 1)  # A row of no tile may hold any position.
    place = (row - block) * group + within

    def some(ref: Any, *at: Any, form: Any) -> Any:
        index = at[-1] if unit == 1 else pl.ds(at[-1], unit)
        found = ref.at[(*at[:-1], index)]
        return found[...] if form is None else plgpu.load(found, layout=form, optimized=False)

    by_head: Any = None if unit == 1 else layout.reduce(1)

    def read(chunk: Any) -> Partial:
        at = jnp.minimum(chunk, last)
        return Partial(
            some(peak_ref, at, head, block, place, form=by_head),
            some(total_ref, at, head, block, place, form=by_head),
            some(mixed_ref, at, head, row * group + within, form=layout),
        )

    together = min(MERGED_TOGETHER, chunks)

    def some_chunks(turn: Any, carry: Partial) -> Partial:
        numbers = [turn * together + i for i in range(together)]
        for number, chunk in zip(numbers, [read(number) for number in numbers], strict=True):
            carry = merged(carry, chunk, jnp.where(number <= last, 1.0, 0.0))
        return carry

    shape = (size,) if unit == 1 else (unit, size)
    peak, total = jnp.full(shape[:-1], MASKED, jnp.float32), jnp.zeros(shape[:-1], jnp.float32)
    if unit > 1:
        peak, total = plgpu.layout_cast(peak, by_head), plgpu.layout_cast(total, by_head)
    start = Partial(peak, total, plgpu.layout_cast(jnp.zeros(shape, jnp.float32), layout))
    end = Partial(*lax.fori_loop(0, last // together + 1, some_chunks, start))
    total = end.total if unit == 1 else lax.broadcast_in_dim(end.total, shape, (0,))
    out = (end.mixed / total).astype(out_ref.dtype)
    first = head * group + within
    put(out_ref.at[row, first] if unit == 1 else out_ref.at[row, pl.ds(first, unit)], out)
