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
    if heads.size % 64:
        raise Unsupported(f"heads of {heads.size}; the device route takes multiples of 64")
    split, rows, _ = parts.shape
    by_head = parts.reshape(split, rows, heads.heads + 2 * heads.kv_heads, heads.size)
    # Without a norm other operands stand for its weights and are left alone.
    weights = (norm.q, norm.k) if norm else (turned.cos, turned.sin)
    numbers = [scalar(x) for x in (layer, count, places.first_page)]
    body = functools.partial(_body, heads=heads, normed=norm is not None)
    q_unit, kv_unit = _unit(heads.group), _unit(heads.kv_heads)
    queries = jax.ShapeDtypeStruct((heads.kv_heads, rows + spare, heads.group, heads.size), pools.keys.dtype)
    (q,), (keys, values) = launch(
        body,
        Grid((("row", rows), ("unit", heads.heads // q_unit + heads.kv_heads // kv_unit))),
        [queries],
        [*numbers, by_head, turned.cos, turned.sin, places.page, places.slot, *weights],
        changed=[pools.keys, pools.values],
        name=f"rope_write_{heads.heads}_{heads.kv_heads}x{heads.size}",
        how=how,
    )
    return q, Pools(keys, values)


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
    q_ref: Any,
    *,
    heads: Heads,
    normed: bool,
) -> None:
    row, unit = lax.axis_index("row"), lax.axis_index("unit")
    q_unit, kv_unit = _unit(heads.group), _unit(heads.kv_heads)
    q_units = heads.heads // q_unit
    half = heads.size // 2

    def prepared(some: _Some, first: Any, which: Any) -> tuple[Any, Any]:
        halves = some.summed(parts_ref, row, first, keys_ref.dtype)
        turned = (some.row(cos_ref.at[row]), some.row(sin_ref.at[row]))
        weight = [some.row(which.at[layer_ref[0], part]) for part in some.halves] if normed else []
        if normed and not heads.norm_after:
            halves = some.norm(halves, weight, heads.eps, keys_ref.dtype)
        halves = some.rotated(halves, turned, keys_ref.dtype)
        if normed and heads.norm_after:
            halves = some.norm(halves, weight, heads.eps, keys_ref.dtype)
        return halves

    @pl.when((row < count_ref[0]) & (unit < q_units))
    def _() -> None:
        some = _Some(q_unit, half)
        first = unit * q_unit
        kv_head, place = first // heads.group, first % heads.group
        for part, value in zip(some.halves, prepared(some, first, q_norm_ref), strict=True):
            put(some.at(q_ref.at[kv_head, row], place, part), value)

    @pl.when((row < count_ref[0]) & (unit >= q_units))
    def _() -> None:
        some = _Some(kv_unit, half)
        first = (unit - q_units) * kv_unit
        page, slot = page_ref[row] + first_page_ref[0], slot_ref[row]
        k = prepared(some, heads.heads + first, k_norm_ref)
        v = some.summed(parts_ref, row, heads.heads + heads.kv_heads + first, keys_ref.dtype)
        # Zero times a value is zero unless the value is not finite.
        sound = some.each(some.sum(v[0].astype(jnp.float32) * 0 + v[1].astype(jnp.float32) * 0)) == 0
        for part, key, value in zip(some.halves, k, v, strict=True):
            put(some.page_at(keys_ref.at[page], first, slot, part), jnp.where(sound, key, jnp.nan))
            put(some.page_at(values_ref.at[page], first, slot, part), jnp.where(sound, value, 0))


class _Some:
    """Reads and sums of `heads` heads as two halves. One head is held as a vector, several as a matrix."""

    def __init__(self, heads: int, half: int):
        self.heads, self.half = heads, half
        self.layout = heads_layout(heads, half)
        self.halves = (pl.ds(0, half), pl.ds(half, half))

    def at(self, ref: Any, first: Any, part: Any) -> Any:
        """Of [all heads, H]."""
        return ref.at[first, part] if self.heads == 1 else ref.at[pl.ds(first, self.heads), part]

    def page_at(self, ref: Any, first: Any, slot: Any, part: Any) -> Any:
        """Of [all heads, PAGE_ROWS, H]."""
        return ref.at[first, slot, part] if self.heads == 1 else ref.at[pl.ds(first, self.heads), slot, part]

    def summed(self, parts_ref: Any, row: Any, first: Any, dtype: Any) -> tuple[Any, Any]:
        """The parts in order, rounded as the product's result is."""

        def one(half: Any) -> Any:
            refs = [self.at(parts_ref.at[part, row], first, half) for part in range(parts_ref.shape[0])]
            read = [plgpu.load(ref, layout=self.layout, optimized=False) for ref in refs]
            return functools.reduce(lambda a, b: a + b, read).astype(dtype)

        return one(self.halves[0]), one(self.halves[1])

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

    def norm(self, halves: tuple[Any, Any], weight: list[Any], eps: float, dtype: Any) -> tuple[Any, Any]:
        low, high = (x.astype(jnp.float32) for x in halves)
        scale = self.each(lax.rsqrt(self.sum(low * low + high * high) / (2 * self.half) + eps))
        return (low * scale).astype(dtype) * weight[0], (high * scale).astype(dtype) * weight[1]

    def rotated(self, halves: tuple[Any, Any], turned: tuple[Any, Any], dtype: Any) -> tuple[Any, Any]:
        low, high = (x.astype(jnp.float32) for x in halves)
        cos, sin = turned
        return (low * cos - high * sin).astype(dtype), (high * cos + low * sin).astype(dtype)
