"""Layer-indexed products by Hopper's warpgroup instruction or by mma.sync: one pipeline, the same bits.

The inner axis is walked in order by one accumulator per part, so rows, tiles, operand order and instruction leave a
row's bits alone; only the number of parts does not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.gpu.launch import PLAIN, Grid, Launch, launch
from tfjax.kernels.gpu.plans import Form, Plan, padded_rows, plan_of
from tfjax.kernels.gpu.tiles import block_spec, put
from tfjax.kernels.routes import Unsupported

BF16 = jnp.bfloat16

type Rounds = Callable[[Any, Any, Any, Any], Any]
"""(rows' tiles, inner tile of the first step, accumulators) -> walks the inner axis."""


def layer_matmul(
    x: jax.Array,
    weight: jax.Array,
    layer: jax.Array,
    count: jax.Array,
    *,
    split: int,
    plan: Plan | None = None,
    how: Launch = PLAIN,
) -> jax.Array:
    """The device route of `tfjax.kernels.layer_matmul.layer_matmul`; `plan` overrides the tuned tiles."""
    return _run(x, weight, layer, count, split=split, plan=plan, gated=False, how=how)


def layer_glu(
    x: jax.Array,
    weight: jax.Array,
    layer: jax.Array,
    count: jax.Array,
    *,
    plan: Plan | None = None,
    how: Launch = PLAIN,
) -> jax.Array:
    """The device route of `tfjax.kernels.layer_matmul.layer_glu`."""
    return _run(x, weight, layer, count, split=1, plan=plan, gated=True, how=how)[0]


def _run(
    x: jax.Array,
    weight: jax.Array,
    layer: jax.Array,
    count: jax.Array,
    *,
    split: int,
    plan: Plan | None,
    gated: bool,
    how: Launch,
) -> jax.Array:
    used = x.shape[0]
    x = jnp.pad(x, ((0, padded_rows(used) - used), (0, 0)))
    rows, inner = x.shape
    columns = weight.shape[1] // (2 if gated else 1)
    plan = plan or plan_of(inner, columns, rows, gated=gated)
    _check(x, weight, split, plan, columns)
    body = functools.partial(
        _body, plan=plan, steps=inner // split // plan.inner, gated=gated, offset=columns // plan.columns
    )
    kind = BF16 if gated else jnp.float32
    scalars = jnp.stack([layer.astype(jnp.int32), count.astype(jnp.int32)])
    (out,), _ = launch(
        body,
        Grid((("column", columns // plan.columns), ("part", split), ("row", rows // plan.rows))),
        [jax.ShapeDtypeStruct((split, rows, columns), kind)],
        [scalars, x, weight],
        name=("glu" if gated else "matmul") + f"_{inner}x{columns}",
        how=how,
    )
    return out[:, :used]


def _check(x: jax.Array, weight: jax.Array, split: int, plan: Plan, columns: int) -> None:
    inner = x.shape[1]
    if x.dtype != BF16 or weight.dtype != BF16:
        raise Unsupported(f"a product of {x.dtype} by {weight.dtype}; the device route multiplies bfloat16")
    if inner % (split * plan.inner) or columns % plan.columns or x.shape[0] % plan.rows:
        raise Unsupported(
            f"{x.shape[0]} rows x {inner} x {columns} in {split} parts is no whole number of tiles "
            f"{plan.rows} x {plan.inner} x {plan.columns}; use the reference route"
        )


def _body(
    scalars_ref: Any, x_ref: Any, w_ref: Any, out_ref: Any, *, plan: Plan, steps: int, gated: bool, offset: int
) -> None:
    """One tile of the result: `plan.rows` x `plan.columns` of one part."""
    column, part, row = lax.axis_index("column"), lax.axis_index("part"), lax.axis_index("row")
    matrix_ref = w_ref.at[scalars_ref[0]]
    held = 0 if plan.form is Form.MMA else 1
    spec = functools.partial(block_spec, held=held)
    specs = [
        spec((plan.rows, plan.inner), lambda i: (row, part * steps + i)),
        spec((plan.columns, plan.inner), lambda i: (column, part * steps + i)),
    ]
    if gated:
        specs.append(spec((plan.columns, plan.inner), lambda i: (column + offset, part * steps + i)))
    inputs = [x_ref] + [matrix_ref] * (len(specs) - 1)
    pipeline = functools.partial(
        plgpu.emit_pipeline, grid=(steps,), in_specs=specs, max_concurrent_steps=min(plan.stages, steps)
    )
    products = {Form.MMA: _by_mma, Form.WEIGHTS: _by_weights, Form.ROWS: _by_rows}[plan.form]

    @pl.when(row * plan.rows < scalars_ref[1])
    def _() -> None:
        sums, store = products(pipeline, inputs, plan, gated)
        at = out_ref.at[part, pl.ds(row * plan.rows, plan.rows), pl.ds(column * plan.columns, plan.columns)]
        store(at, _gate(*sums) if gated else sums[0])


def _gate(gate: Any, up: Any) -> Any:
    gate, up = (value.astype(BF16).astype(jnp.float32) for value in (gate, up))
    return (gate / (1 + jnp.exp(-gate)) * up).astype(BF16)


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
