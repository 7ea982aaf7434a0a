"""Norm, rotation and page write: a block takes a few heads of one row, a warp whole heads."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.gpu.launch import PLAIN, Grid, Launch, launch, scalar
from tfjax.kernels.gpu.tiles import heads_layout, put
from tfjax.kernels.rope_write import HeadNorm, Heads, Places, Pools, Turns
from tfjax.kernels.routes import Unsupported

SIZES = (64, 128, 256)
"""Of heads."""

_PAIRED_TILES = 5
"""Tiles of a block whose heads have interleaved pairs: keys, values and the norm's weight in, keys and values out."""

type Halves = tuple[Any, Any]


def rope_write(
    parts: jax.Array,
    turned: Turns,
    places: Places,
    pools: Pools,
    layer: jax.Array,
    count: jax.Array,
    *,
    heads: Heads,
    norm: HeadNorm | None = None,
    spare: int = 0,
    how: Launch = PLAIN,
) -> tuple[jax.Array, Pools]:
    """The device route of `tfjax.kernels.rope_write.rope_write`."""
    if heads.size not in SIZES:
        raise Unsupported(f"heads of {heads.size}; the device route takes {SIZES}; use the reference route")
    split, rows, _ = parts.shape
    by_head = parts.reshape(split, rows, heads.heads + 2 * heads.kv_heads, *_columns(heads))
    # Without a norm other operands stand for its weights and are left alone.
    weights = [weight.reshape(-1, *_columns(heads)) for weight in norm] if norm else [turned.cos, turned.sin]
    numbers = [scalar(x) for x in (layer, count, places.first_page)]
    body = functools.partial(_body, heads=heads, normed=norm is not None)
    q_unit, kv_unit = _unit(heads.group), _unit(heads.kv_heads)
    dtype = pools.keys.dtype
    queries = jax.ShapeDtypeStruct((heads.kv_heads, rows + spare, heads.group, *_columns(heads)), dtype)
    paired = _PAIRED_TILES * int(heads.interleaved)
    scratch = [plgpu.SMEM((paired, 2, max(q_unit, kv_unit), heads.size // 2, 1), dtype)] if paired else []
    q, changed = launch(
        body,
        Grid((("row", rows), ("unit", heads.heads // q_unit + heads.kv_heads // kv_unit)), scratch),
        [queries] if heads.heads else [],
        [*numbers, by_head, turned.cos, turned.sin, places.page, places.slot, *weights],
        changed=[pool.reshape(*pool.shape[:-1], *_columns(heads)) for pool in pools],
        name=f"rope_write_{heads.heads}_{heads.kv_heads}x{heads.size}",
        how=how,
    )
    written = Pools(*(pool.reshape(pools.keys.shape) for pool in changed))
    return (q[0] if q else jnp.zeros(queries.shape, dtype)).reshape(*queries.shape[:3], heads.size), written


def _columns(heads: Heads) -> tuple[int, ...]:
    """A head's numbers: in pairs where pairs are turned, so that either half of them is a column."""
    return (heads.size // 2, 2) if heads.interleaved else (heads.size,)


def column_layout(heads: int) -> Any:
    """Registers of either column of pairs, [H / 2, 2] or [heads, H / 2, 2], with whole heads in a warp."""
    if heads == 1:
        warps: Any = (plgpu.Replicated(4),)
        return plgpu.Layout.TILED(plgpu.Tiling(((32, 1),)), warp_dims=warps, lane_dims=(-2,), vector_dim=-1)
    warps = (-3,) if heads == 4 else (-3, plgpu.Replicated(2))
    return plgpu.Layout.TILED(plgpu.Tiling(((heads, 32, 1),)), warp_dims=warps, lane_dims=(-2,), vector_dim=-1)


def _unit(heads: int) -> int:
    """Heads that a block takes at once."""
    return next(unit for unit in (4, 2, 1) if heads % unit == 0)


def _body(
    layer_ref: Any,
    count_ref: Any,
    first_page_ref: Any,
    parts_ref: Any,
    cos_ref: Any,
    sin_ref: Any,
    page_ref: Any,
    slot_ref: Any,
    q_norm_ref: Any,
    k_norm_ref: Any,
    keys_ref: Any,
    values_ref: Any,
    *rest: Any,
    heads: Heads,
    normed: bool,
) -> None:
    row, unit = lax.axis_index("row"), lax.axis_index("unit")
    q_unit, kv_unit = _unit(heads.group), _unit(heads.kv_heads)
    q_units = heads.heads // q_unit

    def of(count: int) -> _Some:
        return _Some(count, heads.size // 2, _Tiles(rest[-1]) if heads.interleaved else None)

    def prepared(some: _Some, first: Any, which: Any) -> Halves:
        halves = some.summed(parts_ref, row, first, keys_ref.dtype)
        turned = (some.row(cos_ref.at[row]), some.row(sin_ref.at[row]))
        weight = some.weight(which.at[layer_ref[0]]) if normed else None
        if weight is not None and not heads.norm_after:
            halves = some.norm(halves, weight, heads.eps, keys_ref.dtype)
        halves = some.rotated(halves, turned, keys_ref.dtype)
        if weight is not None and heads.norm_after:
            halves = some.norm(halves, weight, heads.eps, keys_ref.dtype)
        return halves

    def store_query() -> None:
        some = of(q_unit)
        first = unit * q_unit
        kv_head, place = first // heads.group, first % heads.group
        some.put(rest[0].at[kv_head, row], place, prepared(some, first, q_norm_ref))

    if heads.heads:
        pl.when((row < count_ref[0]) & (unit < q_units))(store_query)

    @pl.when((row < count_ref[0]) & (unit >= q_units) & (page_ref[row] >= 0))
    def _() -> None:
        some = of(kv_unit)
        first = (unit - q_units) * kv_unit
        page, slot = page_ref[row] + first_page_ref[0], slot_ref[row]
        k = prepared(some, heads.heads + first, k_norm_ref)
        v = some.summed(parts_ref, row, heads.heads + heads.kv_heads + first, keys_ref.dtype)
        # Zero times a value is zero unless the value is not finite.
        sound = some.each(some.sum(v[0].astype(jnp.float32) * 0 + v[1].astype(jnp.float32) * 0)) == 0
        keys = jnp.where(sound, k[0], jnp.nan), jnp.where(sound, k[1], jnp.nan)
        some.put(keys_ref.at[page, :, slot], first, keys)
        some.put(values_ref.at[page, :, slot], first, (jnp.where(sound, v[0], 0), jnp.where(sound, v[1], 0)))


class _Tiles:
    """Shared memory through which pairs become halves and halves pairs. No tile is used twice, so none is waited for.

    Registers want numbers that lie side by side in memory, which either half of interleaved pairs does not.
    """

    def __init__(self, memory: Any):
        self.memory = memory
        self.used = 0

    def next(self, heads: int) -> Any:
        """Shape: [2, heads, H / 2, 1]."""
        self.used += 1
        return self.memory.at[self.used - 1, :, pl.ds(0, heads)]


class _Some:
    """Reads, sums and writes of `heads` heads as two halves. One head is held as a vector, several as a matrix."""

    def __init__(self, heads: int, half: int, tiles: _Tiles | None):
        self.heads, self.half, self.tiles = heads, half, tiles
        self.layout = heads_layout(heads, half)
        self.column = column_layout(heads)

    def at(self, ref: Any, first: Any) -> Any:
        """Of [all heads, ...]."""
        return ref.at[first] if self.heads == 1 else ref.at[pl.ds(first, self.heads)]

    def part(self, ref: Any, which: int) -> Any:
        """A half of heads as they lie in device memory."""
        before = (slice(None),) * (len(ref.shape) - (2 if self.tiles else 1))
        if self.tiles:
            return ref.at[(*before, slice(None), pl.ds(which, 1))]
        return ref.at[(*before, pl.ds(which * self.half, self.half))]

    def summed(self, parts_ref: Any, row: Any, first: Any, dtype: Any) -> Halves:
        """The parts in order, rounded as the product's result is."""
        layout = self.column if self.tiles else self.layout

        def one(half: int) -> Any:
            refs = [self.part(self.at(parts_ref.at[part, row], first), half) for part in range(parts_ref.shape[0])]
            read = [plgpu.load(ref, layout=layout, optimized=False) for ref in refs]
            return functools.reduce(lambda a, b: a + b, read).astype(dtype)

        return self._halves((one(0), one(1)), self.layout)

    def weight(self, ref: Any) -> Halves:
        """Of the norm, the same for all heads."""
        if not self.tiles:
            return self.row(self.part(ref, 0)), self.row(self.part(ref, 1))
        alone = _Some(1, self.half, self.tiles)
        read = [plgpu.load(self.part(ref, half), layout=alone.column, optimized=False) for half in (0, 1)]
        layout = self.layout if self.heads == 1 else self.layout.reduce(0)
        low, high = alone._halves((read[0], read[1]), layout)
        if self.heads == 1:
            return low, high
        shape = (self.heads, self.half)
        return lax.broadcast_in_dim(low, shape, (1,)), lax.broadcast_in_dim(high, shape, (1,))

    def _halves(self, columns: Halves, layout: Any) -> Halves:
        """Columns of pairs as halves in a layout."""
        if not self.tiles:
            return columns
        tile = self.tiles.next(self.heads)
        for half, value in enumerate(columns):
            put(self.at(tile.at[half], 0), value)
        plgpu.commit_smem()
        read = [plgpu.load(self.at(tile.at[half, :, :, 0], 0), layout=layout, optimized=False) for half in (0, 1)]
        return read[0], read[1]

    def put(self, ref: Any, first: Any, halves: Halves) -> None:
        """Store into heads from `first` on, of [all heads, ...] in device memory."""
        if self.tiles:
            tile = self.tiles.next(self.heads)
            for half, value in enumerate(halves):
                put(self.at(tile.at[half, :, :, 0], 0), value)
            plgpu.commit_smem()
            read = [plgpu.load(self.at(tile.at[half], 0), layout=self.column, optimized=False) for half in (0, 1)]
            halves = read[0], read[1]
        for half, value in enumerate(halves):
            put(self.part(self.at(ref, first), half), value)

    def row(self, ref: Any) -> Any:
        """A vector of half a head, the same for all heads."""
        if self.heads == 1:
            return plgpu.load(ref, layout=self.layout, optimized=False)
        value = plgpu.load(ref, layout=self.layout.reduce(0), optimized=False)
        return lax.broadcast_in_dim(value, (self.heads, self.half), (1,))

    def sum(self, x: Any) -> Any:
        """Of each head."""
        return jnp.sum(x) if self.heads == 1 else jnp.sum(x, axis=1)

    def each(self, x: Any) -> Any:
        """A number of each head for all its elements."""
        if self.heads == 1:
            return jnp.full((self.half,), x)
        return lax.broadcast_in_dim(x, (self.heads, self.half), (0,))

    def norm(self, halves: Halves, weight: Halves, eps: float, dtype: Any) -> Halves:
        low, high = (x.astype(jnp.float32) for x in halves)
        scale = self.each(lax.rsqrt(self.sum(low * low + high * high) / (2 * self.half) + eps))
        return (low * scale).astype(dtype) * weight[0], (high * scale).astype(dtype) * weight[1]

    def rotated(self, halves: Halves, turned: Halves, dtype: Any) -> Halves:
        low, high = (x.astype(jnp.float32) for x in halves)
        cos, sin = turned
        return (low * cos - high * sin).astype(dtype), (high * cos + low * sin).astype(dtype)
