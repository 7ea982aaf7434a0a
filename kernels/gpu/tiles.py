"""Shared memory tiles and register layouts that several kernels use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.routes import Unsupported

WARPGROUP = 128
"""Threads of a block."""


def swizzled(columns: int, item_bytes: int) -> tuple[Any, ...]:
    """Transforms of a tile in shared memory that products and bulk copies both take."""
    swizzle = plgpu.find_swizzle(columns * item_bytes * 8)
    tiling: Any = plgpu.TilingTransform
    swizzling: Any = plgpu.SwizzleTransform
    return tiling((8, swizzle // item_bytes)), swizzling(swizzle)


def block_spec(
    shape: tuple[int, int], index: Callable[[Any], tuple[Any, Any]], *, item_bytes: int = 2, held: int = 0
) -> Any:
    """A tile of a pipeline. `held` is how many steps later than its own it may be overwritten."""
    return plgpu.BlockSpec(shape, index, transforms=swizzled(shape[-1], item_bytes), delay_release=held)


def put(ref: Any, value: Any) -> None:
    """Store registers to device memory, in pieces as small as their layout has them."""
    # Before jax 0.12 a plain store did that; since then it refuses pieces that are not whole sectors.
    store: Any = getattr(plgpu, "store", None)
    if store is None:
        ref[...] = value
    else:
        store(ref, value, optimized=False)


def row_layout(size: int) -> Any:
    """Registers of a vector that one block holds, every thread the same number of elements.

    A size of no whole number of warpgroups is held by each warp alike.

    Raises:
        Unsupported: if the size is no multiple of a warp.
    """
    for vector in (4, 2, 1):
        if size % (WARPGROUP * vector) == 0:
            return plgpu.Layout.WG_STRIDED((size,), vec_size=vector)
    for vector in (4, 2, 1):
        if size % (32 * vector) == 0:
            tiling = plgpu.Tiling(((32 * vector,), (vector,)))
            return plgpu.Layout.TILED(tiling, warp_dims=(plgpu.Replicated(4),), lane_dims=(-2,), vector_dim=-1)
    raise Unsupported(f"a row of {size} is no multiple of 32; use the reference route")


def heads_layout(heads: int, size: int) -> Any:
    """Registers of [heads, size] where a warp holds whole rows, so that sums over a row stay inside it."""
    vector = size // 32
    if size % 32 or heads not in (1, 2, 4):
        raise Unsupported(f"{heads} heads of {size} do not fit warps; use the reference route")
    if heads == 1:
        tiling = plgpu.Tiling(((size,), (vector,)))
        return plgpu.Layout.TILED(tiling, warp_dims=(plgpu.Replicated(4),), lane_dims=(-2,), vector_dim=-1)
    warps = (-3,) if heads == 4 else (-3, plgpu.Replicated(2))
    return plgpu.Layout.TILED(plgpu.Tiling(((heads, size), (vector,))), warp_dims=warps, lane_dims=(-2,), vector_dim=-1)


def check_bfloat16(x: jax.Array, weight: jax.Array) -> None:
    """Dense products take nothing else.

    Raises:
        Unsupported: for rows or weights of another dtype.
    """
    if x.dtype != jnp.bfloat16 or weight.dtype != jnp.bfloat16:
        raise Unsupported(f"a product of {x.dtype} by {weight.dtype}; the device route multiplies bfloat16")
