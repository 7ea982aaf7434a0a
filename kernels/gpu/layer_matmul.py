"""Layer-indexed products by Hopper's warpgroup instruction or by mma.sync: one pipeline, the same bits.

The inner axis is walked in order by one accumulator per part, so rows, tiles, operand order and instruction leave a
row's bits alone; only the number of parts does not.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.gpu.launch import PLAIN, Grid, Launch, launch, scalar
from tfjax.kernels.gpu.plans import Plan, padded_rows, plan_of
from tfjax.kernels.gpu.tile_products import along_columns, held_steps, walked
from tfjax.kernels.gpu.tiles import block_spec, check_bfloat16
from tfjax.kernels.routes import Unsupported

BF16 = jnp.bfloat16


def layer_matmul(
    x: jax.Array,
    weight: jax.Array,
    layer: jax.Array,
    count: jax.Array,
    *,
    split: int,
    bias: jax.Array | None = None,
    plan: Plan | None = None,
    how: Launch = PLAIN,
) -> jax.Array:
    """The device route of `tfjax.kernels.layer_matmul.layer_matmul`; `plan` overrides the tuned tiles."""
    return _run(x, weight, layer, count, split=split, bias=bias, plan=plan, gated=False, how=how)


def layer_glu(
    x: jax.Array,
    weight: jax.Array,
    layer: jax.Array,
    count: jax.Array,
    *,
    bias: jax.Array | None = None,
    plan: Plan | None = None,
    how: Launch = PLAIN,
) -> jax.Array:
    """The device route of `tfjax.kernels.layer_matmul.layer_glu`."""
    return _run(x, weight, layer, count, split=1, bias=bias, plan=plan, gated=True, how=how)[0]


def _run(
    x: jax.Array,
    weight: jax.Array,
    layer: jax.Array,
    count: jax.Array,
    *,
    split: int,
    bias: jax.Array | None,
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
    (out,), _ = launch(
        body,
        Grid((("column", columns // plan.columns), ("part", split), ("row", rows // plan.rows))),
        [jax.ShapeDtypeStruct((split, rows, columns), kind)],
        [scalar(layer), scalar(count), x, weight, *([] if bias is None else [bias])],
        name=("glu" if gated else "matmul") + f"_{inner}x{columns}",
        how=how,
    )
    return out[:, :used]


def _check(x: jax.Array, weight: jax.Array, split: int, plan: Plan, columns: int) -> None:
    inner = x.shape[1]
    check_bfloat16(x, weight)
    if inner % (split * plan.inner) or columns % plan.columns or x.shape[0] % plan.rows:
        raise Unsupported(
            f"{x.shape[0]} rows x {inner} x {columns} in {split} parts is no whole number of tiles "
            f"{plan.rows} x {plan.inner} x {plan.columns}; use the reference route"
        )
    if inner // split // plan.inner <= held_steps(plan.form):
        raise Unsupported(
            f"{inner} inputs in {split} parts are one step of {plan.inner} each; the device route takes two at least, "
            "so use the reference route"
        )


def _body(
    layer_ref: Any,
    count_ref: Any,
    x_ref: Any,
    w_ref: Any,
    *refs: Any,
    plan: Plan,
    steps: int,
    gated: bool,
    offset: int,
) -> None:
    """One tile of the result: `plan.rows` x `plan.columns` of one part."""
    *bias_ref, out_ref = refs
    column, part, row = lax.axis_index("column"), lax.axis_index("part"), lax.axis_index("row")
    matrix_ref = w_ref.at[layer_ref[0]]
    spec = functools.partial(block_spec, held=held_steps(plan.form))
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

    @pl.when(row * plan.rows < count_ref[0])
    def _() -> None:
        sums, store = walked(pipeline, inputs, plan, gated=gated)
        if bias_ref:
            sums = biased(sums, bias_ref[0].at[layer_ref[0]], column, part, plan=plan, offset=offset)
        at = out_ref.at[part, pl.ds(row * plan.rows, plan.rows), pl.ds(column * plan.columns, plan.columns)]
        store(at, silu_gate(*sums) if gated else sums[0])


def biased(sums: Any, bias_ref: Any, column: Any, part: Any, *, plan: Plan, offset: int) -> tuple[Any, ...]:
    """The sums of the first part with the bias of their columns; of other parts as they are, to the last bit."""
    found = []
    for number, total in enumerate(sums):
        at = pl.ds((column + number * offset) * plan.columns, plan.columns)
        value = along_columns(bias_ref.at[at], plan)
        # To add -0 changes nothing, where to add 0 would turn -0 into it.
        found.append(total + jnp.where(jnp.full(value.shape, part == 0), value, jnp.full_like(value, -0.0)))
    return tuple(found)


def silu_gate(gate: Any, up: Any) -> Any:
    """silu(gate) * up of two products, each rounded first."""
    gate, up = (value.astype(BF16).astype(jnp.float32) for value in (gate, up))
    return (gate / (1 + jnp.exp(-gate)) * up).astype(BF16)
