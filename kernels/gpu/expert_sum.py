"""Weighted outputs of experts, residual and RMSNorm: one block a row, so that its order of additions is its own."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.gpu.launch import PLAIN, Grid, Launch, launch, scalar
from tfjax.kernels.gpu.tiles import put, row_layout
from tfjax.kernels.grouped_matmul import Tiles, WindowTiles


def expert_sum(
    outputs: jax.Array,
    tiles: Tiles,
    factor: jax.Array,
    x: jax.Array,
    weight: jax.Array,
    layer: jax.Array,
    count: jax.Array,
    *,
    picked: int,
    eps: float,
    how: Launch = PLAIN,
) -> tuple[jax.Array, jax.Array]:
    """The device route of `tfjax.kernels.expert_sum.expert_sum`."""
    rows, size = x.shape
    whole = isinstance(tiles, WindowTiles)
    # Of a window the kernel makes the places itself: a kernel less.
    place = tiles.choice if isinstance(tiles, WindowTiles) else tiles.place
    kind = jax.ShapeDtypeStruct(x.shape, x.dtype)
    (summed, normed), _ = launch(
        functools.partial(_body, layout=row_layout(size), picked=picked, whole=whole, eps=eps),
        Grid((("row", rows),)),
        [kind, kind],
        [scalar(layer), scalar(count), place, factor, outputs, x, weight],
        name=f"expert_sum_{size}",
        how=how,
    )
    return summed, normed


def _body(
    layer_ref: Any,
    count_ref: Any,
    place_ref: Any,
    factor_ref: Any,
    outputs_ref: Any,
    x_ref: Any,
    weight_ref: Any,
    sum_ref: Any,
    norm_ref: Any,
    *,
    layout: Any,
    picked: int,
    whole: bool,
    eps: float,
) -> None:
    row = lax.axis_index("row")

    def read(ref: Any) -> Any:
        return plgpu.load(ref, layout=layout, optimized=False)

    def part(rank: int) -> Any:
        place = place_ref[row, rank]
        at = place * x_ref.shape[0] + row if whole else place
        return read(outputs_ref.at[at]) * factor_ref[row, rank]

    @pl.when(row < count_ref[0])
    def _() -> None:
        total = functools.reduce(lambda a, b: a + b, [part(rank) for rank in range(picked)])
        summed = (read(x_ref.at[row]).astype(jnp.float32) + total).astype(x_ref.dtype)
        put(sum_ref.at[row], summed)
        wide = summed.astype(jnp.float32)
        scale = lax.rsqrt(jnp.sum(wide * wide) / x_ref.shape[1] + eps)
        put(norm_ref.at[row], (wide * scale).astype(x_ref.dtype) * read(weight_ref.at[layer_ref[0]]))
