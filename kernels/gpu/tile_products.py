"""A tile of a product, walked along the inner axis in order: by mma.sync or by Hopper's warpgroup instruction.

Each form takes a pipeline that brings the rows' tile and one or two tiles of weights a step, and gives the sums and how
to store them. Bits are the same for every form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.gpu.plans import Form, Plan
from tfjax.kernels.gpu.tiles import put

BF16 = jnp.bfloat16

type Store = Callable[[Any, Any], None]
"""(where in device memory, value) -> stores the tile."""


def held_steps(form: Form) -> int:
    """Steps that operands must outlive their own: the warpgroup instruction reads them while the next begins."""
    return 0 if form is Form.MMA else 1


def walked(pipeline: Any, inputs: Any, plan: Plan, *, gated: bool) -> tuple[tuple[Any, ...], Store]:
    """The sums of a tile, gate and up where `gated`, and how to store one like them.

    Args:
        pipeline: brings tiles of the inputs [rows, inner], [columns, inner] and, where gated, [columns, inner].
    """
    found: tuple[tuple[Any, ...], Store] = _FORMS[plan.form](pipeline, inputs, plan, gated)
    return found


def _by_mma(pipeline: Any, inputs: Any, plan: Plan, gated: bool) -> Any:
    """mma.sync: 16 rows a warp, and the warps that are left side by side along the columns."""
    layouts = {
        name: kind(BF16, m_warps=min(4, plan.rows // 16))
        for name, kind in (
            ("rows", plgpu.Layout.MMA_LHS),
            ("columns", plgpu.Layout.MMA_RHS),
            ("sums", plgpu.Layout.MMA_ACC),
        )
    }
    zeros = plgpu.layout_cast(jnp.zeros((plan.rows, plan.columns), jnp.float32), layouts["sums"])

    def step(_: Any, x_tile: Any, *rest: Any) -> Any:
        *tiles, sums = rest
        x = plgpu.load(x_tile, layout=layouts["rows"])
        return tuple(
            plgpu.mma(total, x, plgpu.load(tile.T, layout=layouts["columns"]))
            for total, tile in zip(sums, tiles, strict=True)
        )

    sums = pipeline(step, init_carry=(zeros,) * (2 if gated else 1))(*inputs)

    def store(at: Any, value: Any) -> None:
        put(at, value)

    return sums, store


def _by_weights(pipeline: Any, inputs: Any, plan: Plan, gated: bool) -> Any:
    """The warpgroup instruction with the weights as its tall side: few rows need no padding."""

    def one(total: Any, x_tile: Any, tile: Any) -> None:
        plgpu.wgmma(total, tile, x_tile.T)

    def store(at: Any, value: Any) -> None:
        put(at.T, plgpu.layout_cast(value, plgpu.Layout.WGMMA_TRANSPOSED))

    return _by_warpgroup(pipeline, inputs, (plan.columns, plan.rows), one, gated), store


def _by_rows(pipeline: Any, inputs: Any, plan: Plan, gated: bool) -> Any:
    """The warpgroup instruction with the rows as its tall side, for prompts."""

    def one(total: Any, x_tile: Any, tile: Any) -> None:
        plgpu.wgmma(total, x_tile, tile.T)

    def store(at: Any, value: Any) -> None:
        put(at, value)

    return _by_warpgroup(pipeline, inputs, (plan.rows, plan.columns), one, gated), store


def _by_warpgroup(pipeline: Any, inputs: Any, shape: tuple[int, int], one: Any, gated: bool) -> Any:
    def walk(*sums: Any) -> Any:
        def step(_: Any, x_tile: Any, *tiles: Any) -> None:
            for total, tile in zip(sums, tiles, strict=True):
                one(total, x_tile, tile)
            plgpu.wgmma_wait(len(sums))

        pipeline(step)(*inputs)
        return tuple(total[...] for total in sums)

    return pl.run_scoped(walk, *[plgpu.WGMMAAccumulatorRef(shape, jnp.float32)] * (2 if gated else 1))


_FORMS: dict[Form, Callable[..., Any]] = {Form.MMA: _by_mma, Form.WEIGHTS: _by_weights, Form.ROWS: _by_rows}
