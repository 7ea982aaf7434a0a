"""Partial sums, residual and RMSNorm: one block a row, so that its order of additions is its own."""

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


def sum_norm(
    parts: jax.Array,
    x: jax.Array,
    weight: jax.Array,
    layer: jax.Array,
    count: jax.Array,
    *,
    eps: float,
    how: Launch = PLAIN,
) -> tuple[jax.Array, jax.Array]:
    """The device route of `tfjax.kernels.sum_norm.sum_norm`."""
    rows, size = x.shape
    split = parts.shape[0]
    body = functools.partial(_body, split=split, layout=row_layout(size), eps=eps)
    # No operand may be empty; without parts another one stands there and is left alone.
    kind = jax.ShapeDtypeStruct(x.shape, x.dtype)
    (summed, normed), _ = launch(
        body,
        Grid((("row", rows),)),
        [kind, kind],
        [scalar(layer), scalar(count), parts if split else x, x, weight],
        name=f"sum_norm_{size}",
        how=how,
    )
    return summed, normed


def _body(
    layer_ref: Any,
    count_ref: Any,
    parts_ref: Any,
    x_ref: Any,
    weight_ref: Any,
    sum_ref: Any,
    norm_ref: Any,
    *,
    split: int,
    layout: Any,
    eps: float,
) -> None:
    row = lax.axis_index("row")

    def read(ref: Any) -> Any:
        return plgpu.load(ref, layout=layout, optimized=False)

    @pl.when(row < count_ref[0])
    def _() -> None:
        x = read(x_ref.at[row])
        wide = x.astype(jnp.float32)
        if split:
            total = read(parts_ref.at[0, row])
            for part in range(1, split):
                total = total + read(parts_ref.at[part, row])
            wide = wide + total
        summed = wide.astype(x_ref.dtype)
        put(sum_ref.at[row], summed)
        wide = summed.astype(jnp.float32)
        scale = lax.rsqrt(jnp.sum(wide * wide) / x_ref.shape[1] + eps)
        put(norm_ref.at[row], (wide * scale).astype(x_ref.dtype) * read(weight_ref.at[layer_ref[0]]))
