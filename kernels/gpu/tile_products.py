"""A tile of a product, walked along the inner axis in order: by mma.sync or by Hopper's warpgroup instruction.

Each form takes a pipeline that brings the rows' tile and one or two tiles of weights a step, and gives the sums and how
to store them. Bits are the same for every form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.gpu.plans import Form, Plan
from tfjax.kernels.gpu.tiles import put

BF16 = jnp.bfloat16

type Store = Callable[[Any, Any], None]
"""(where in device memory, value) -> stores the tile."""


type Runs = Callable[[Any, Any, Any], Iterable[tuple[Any, Any]]]
"""(index, rows' tile, what came with it) of a step -> the tiles of rows and of weights to multiply, in order."""


def as_brought(_: Any, x_tile: Any, tiles: Any) -> Iterable[tuple[Any, Any]]:
    """Dense weights: what the pipeline brings is multiplied at once."""
    return [(x_tile, tiles)]


def held_steps(form: Form) -> int:
    """Steps that operands must outlive their own: the warpgroup instruction reads them while the next begins."""
    return 0 if form is Form.MMA else 1


def walked(
    pipeline: Any, inputs: Any, plan: Plan, *, gated: bool, runs: Runs = as_brought
) -> tuple[tuple[Any, ...], Store]:
    """The sums of a tile, gate and up where `gated`, and how to store one like them.

    Args:
        pipeline: brings tiles of the inputs [rows, inner], [columns, inner] and, where gated, [columns, inner].
        runs: makes those of what a step brings, where that is something else.
    """
    found: tuple[tuple[Any, ...], Store] = _FORMS[plan.form](pipeline, inputs, plan, gated, runs)
    return found


def along_columns(ref: Any, plan: Plan) -> Any:
    """A vector of the tile's columns in float32 for each of its rows, where the form's sums lie.

    Shapes: [columns] -> [columns, rows] or [rows, columns].
    """
    layout, axis = {
        Form.MMA: (plgpu.Layout.MMA_ACC(BF16, m_warps=min(4, plan.rows // 16)), 1),
        Form.WEIGHTS: (plgpu.Layout.WGMMA, 0),
        Form.ROWS: (plgpu.Layout.WGMMA, 1),
    }[plan.form]
    vector = plgpu.load(ref, layout=layout.reduce(1 - axis), optimized=False).astype(jnp.float32)
    shape = (plan.columns, plan.rows) if axis == 0 else (plan.rows, plan.columns)
    return plgpu.layout_cast(jax.lax.broadcast_in_dim(vector, shape, (axis,)), layout)


def _by_mma(pipeline: Any, inputs: Any, plan: Plan, gated: bool, runs: Runs) -> Any:
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

    def step(index: Any, x_tile: Any, *rest: Any) -> Any:
        *brought, sums = rest
        for run, tiles in runs(index, x_tile, brought):
            x = plgpu.load(run, layout=layouts["rows"])
            sums = tuple(
                plgpu.mma(total, x, plgpu.load(tile.T, layout=layouts["columns"]))
                for total, tile in zip(sums, tiles, strict=True)
            )
        return sums

    sums = pipeline(step, init_carry=(zeros,) * (2 if gated else 1))(*inputs)

    def store(at: Any, value: Any) -> None:
        put(at, value)

    return sums, store


def _by_weights(pipeline: Any, inputs: Any, plan: Plan, gated: bool, runs: Runs) -> Any:
    """The warpgroup instruction with the weights as its tall side: few rows need no padding."""

    def one(total: Any, x_tile: Any, tile: Any) -> None:
        plgpu.wgmma(total, tile, x_tile.T)

    def store(at: Any, value: Any) -> None:
        put(at.T, plgpu.layout_cast(value, plgpu.Layout.WGMMA_TRANSPOSED))

    return _by_warpgroup(pipeline, inputs, (plan.columns, plan.rows), one, gated, runs), store


def _by_rows(pipeline: Any, inputs: Any, plan: Plan, gated: bool, runs: Runs) -> Any:
    """The warpgroup instruction with the rows as its tall side, for prompts."""

    def one(total: Any, x_tile: Any, tile: Any) -> None:
        plgpu.wgmma(total, x_tile, tile.T)

    def store(at: Any, value: Any) -> None:
        put(at, value)

    return _by_warpgroup(pipeline, inputs, (plan.rows, plan.columns), one, gated, runs), store


def _by_warpgroup(pipeline: Any, inputs: Any, shape: tuple[int, int], one: Any, gated: bool, runs: Runs) -> Any:
    def walk(*sums: Any) -> Any:
        def step(index: Any, x_tile: Any, *brought: Any) -> None:
            for run, tiles in runs(index, x_tile, brought):
                for total, tile in zip(sums, tiles, strict=True):
                    one(total, run, tile)
                plgpu.wgmma_wait(len(sums))

        pipeline(step)(*inputs)
        return tuple(total[...] for total in sums)

    return pl.run_scoped(walk, *[plgpu.WGMMAAccumulatorRef(shape, jnp.float32)] * (2 if gated else 1))


_FORMS: dict[Form, Callable[..., Any]] = {Form.MMA: _by_mma, Form.WEIGHTS: _by_weights, Form.ROWS: _by_rows}
