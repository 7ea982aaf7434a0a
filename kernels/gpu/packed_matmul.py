"""Layer-indexed products of packed weights: codes come from memory, and a block expands its own tiles.

The tile that is multiplied is the dense bfloat16 tile, in the same order and by the same instructions as in
`layer_matmul`, so a product has the bits of the dense stack's whatever rows, tiles and form it takes.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.gpu import layer_matmul as dense
from tfjax.kernels.gpu.launch import PLAIN, Grid, Launch, launch, scalar
from tfjax.kernels.gpu.packed_tiles import (
    RUN,
    RunForm,
    Scratch,
    brought_runs,
    check_form,
    scratch_bytes,
    scratch_types,
    stage_groups,
)
from tfjax.kernels.gpu.plans import Plan, packed_plan_of, padded_rows
from tfjax.kernels.gpu.tile_products import held_steps, walked
from tfjax.kernels.gpu.tiles import block_spec, swizzled
from tfjax.kernels.packed import WORD_BITS, PackedWeight, expanded
from tfjax.kernels.routes import Unsupported

BF16 = jnp.bfloat16

MOST_BYTES = 226 << 10
"""Of shared memory that a block may take; the barriers have the rest."""


def packed_matmul(
    x: jax.Array,
    weight: PackedWeight,
    layer: jax.Array,
    count: jax.Array,
    *,
    split: int,
    bias: jax.Array | None = None,
    plan: Plan | None = None,
    dense_first: bool = False,
    how: Launch = PLAIN,
) -> jax.Array:
    """The device route of `tfjax.kernels.layer_matmul.layer_matmul` for a packed weight.

    Args:
        plan: overrides the tiles.
        dense_first: expand the layer's whole matrix and multiply that: the same bits, for a temporary of its size.
    """
    if dense_first:
        one = expanded(weight.at(layer))[None]
        return dense.layer_matmul(x, one, jnp.int32(0), count, split=split, bias=_of(bias, layer), how=how)
    return _run(x, weight, layer, count, split=split, bias=bias, plan=plan, gated=False, how=how)


def packed_glu(
    x: jax.Array,
    weight: PackedWeight,
    layer: jax.Array,
    count: jax.Array,
    *,
    bias: jax.Array | None = None,
    plan: Plan | None = None,
    dense_first: bool = False,
    how: Launch = PLAIN,
) -> jax.Array:
    """The device route of `tfjax.kernels.layer_matmul.layer_glu` for a packed weight. Arguments: as above."""
    if dense_first:
        one = expanded(weight.at(layer))[None]
        return dense.layer_glu(x, one, jnp.int32(0), count, bias=_of(bias, layer), how=how)
    return _run(x, weight, layer, count, split=1, bias=bias, plan=plan, gated=True, how=how)[0]


def _of(bias: jax.Array | None, layer: jax.Array) -> jax.Array | None:
    return None if bias is None else bias[layer][None]


def _run(
    x: jax.Array,
    weight: PackedWeight,
    layer: jax.Array,
    count: jax.Array,
    *,
    split: int,
    bias: jax.Array | None,
    plan: Plan | None,
    gated: bool,
    how: Launch,
) -> jax.Array:
    used, matrices = x.shape[0], 2 if gated else 1
    x = jnp.pad(x, ((0, padded_rows(used) - used), (0, 0)))
    rows, inner = x.shape
    columns = weight.shape[1] // matrices
    plan = plan or packed_plan_of(inner // split, columns, rows, gated=gated)
    _check(x, weight, split, plan, columns)
    form = RunForm(plan.columns, weight.bits, weight.group, how.interpret)
    groups, steps = inner // split // weight.group, inner // split // plan.inner
    _check_memory(plan, form, matrices, groups, min(plan.stages, steps))
    body = functools.partial(
        _body,
        plan=plan,
        form=form,
        steps=steps,
        groups=groups,
        gated=gated,
        offset=columns // plan.columns,
    )
    (out,), _ = launch(
        body,
        Grid(
            (("column", columns // plan.columns), ("part", split), ("row", rows // plan.rows)),
            scratch_types(form, matrices, groups, weight.scales.dtype),
        ),
        [jax.ShapeDtypeStruct((split, rows, columns), BF16 if gated else jnp.float32)],
        [
            *(scalar(layer), scalar(count), x, weight.words, weight.scales, weight.biases),
            *([] if bias is None else [bias]),
        ],
        name=("packed_glu" if gated else "packed_matmul") + f"_{inner}x{columns}",
        how=how,
    )
    return out[:, :used]


def _check(x: jax.Array, weight: PackedWeight, split: int, plan: Plan, columns: int) -> None:
    inner = x.shape[1]
    if x.dtype != BF16 or weight.dtype != BF16:
        raise Unsupported(f"a product of {x.dtype} by packed {weight.dtype}; the device route multiplies bfloat16")
    check_form(weight)
    part = inner // split
    if inner % split or part % weight.group or part % plan.inner or plan.inner % RUN:
        raise Unsupported(
            f"{inner} inputs in {split} parts are no whole groups of {weight.group} and steps of {plan.inner}; "
            "use the reference route"
        )
    if columns % plan.columns or x.shape[0] % plan.rows:
        raise Unsupported(
            f"{x.shape[0]} rows x {columns} columns are no whole number of tiles {plan.rows} x {plan.columns}; "
            "use the reference route"
        )


def _check_memory(plan: Plan, form: RunForm, matrices: int, groups: int, stages: int) -> None:
    """A block holds all scales of its part, of which short groups have many."""
    brought = plan.inner * (plan.rows * 2 + matrices * plan.columns * form.bits // 8)
    taken = stages * brought + scratch_bytes(form, matrices, groups)
    if taken > MOST_BYTES:
        raise Unsupported(
            f"{groups} groups of {form.group} columns in a part would take {taken} of {MOST_BYTES} bytes of shared "
            "memory; use the reference route"
        )


def _body(
    layer_ref: Any,
    count_ref: Any,
    x_ref: Any,
    words_ref: Any,
    scales_ref: Any,
    biases_ref: Any,
    *refs: Any,
    plan: Plan,
    form: RunForm,
    steps: int,
    groups: int,
    gated: bool,
    offset: int,
) -> None:
    """One tile of the result: `plan.rows` x `plan.columns` of one part."""
    *bias_ref, out_ref, runs_s, scales_s, biases_s = refs
    column, part, row = lax.axis_index("column"), lax.axis_index("part"), lax.axis_index("row")
    layer = layer_ref[0]
    firsts = [column, column + offset] if gated else [column]
    width = plan.inner * form.bits // WORD_BITS
    # A run's words are a row of the swizzle. To leave that open makes lowering search for it.
    laid = swizzled(form.words, 4)
    specs = [
        block_spec((plan.rows, plan.inner), lambda i: (row, part * steps + i), held=held_steps(plan.form)),
        *[
            plgpu.BlockSpec((plan.columns, width), lambda i, first=first: (first, part * steps + i), transforms=laid)
            for first in firsts
        ],
    ]
    pipeline = functools.partial(
        plgpu.emit_pipeline, grid=(steps,), in_specs=specs, max_concurrent_steps=min(plan.stages, steps)
    )

    def stage() -> None:
        for matrix, first in enumerate(firsts):
            at = (layer, pl.ds(first * plan.columns, plan.columns), pl.ds(part * groups, groups))
            stage_groups(scales_ref.at[at], scales_s.at[matrix])
            stage_groups(biases_ref.at[at], biases_s.at[matrix])

    @pl.when(row * plan.rows < count_ref[0])
    def _() -> None:
        runs = brought_runs(form, Scratch(runs_s, scales_s, biases_s), stage, plan.inner)
        inputs = [x_ref] + [words_ref.at[layer]] * len(firsts)
        sums, store = walked(pipeline, inputs, plan, gated=gated, runs=runs)
        if bias_ref:
            sums = dense.biased(sums, bias_ref[0].at[layer], column, part, plan=plan, offset=offset)
        at = out_ref.at[part, pl.ds(row * plan.rows, plan.rows), pl.ds(column * plan.columns, plan.columns)]
        store(at, dense.silu_gate(*sums) if gated else sums[0])
