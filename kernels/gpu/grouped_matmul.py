"""Products of rows grouped by expert: the layer product whose matrix is looked up for every tile of rows."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.gpu.launch import PLAIN, Grid, Launch, launch, scalar
from tfjax.kernels.gpu.layer_matmul import silu_gate
from tfjax.kernels.gpu.plans import Plan, grouped_plan_of
from tfjax.kernels.gpu.tile_products import held_steps, walked
from tfjax.kernels.gpu.tiles import block_spec, check_bfloat16, row_layout
from tfjax.kernels.grouped_matmul import LEAST_TILE, Tiles, WindowTiles
from tfjax.kernels.routes import Unsupported

BF16 = jnp.bfloat16

LEAST_VECTOR = 32
"""What a vector that a warp holds is a multiple of."""


def grouped_matmul(
    x: jax.Array,
    weight: jax.Array,
    first: jax.Array,
    tiles: Tiles,
    *,
    plan: Plan | None = None,
    how: Launch = PLAIN,
) -> jax.Array:
    """The device route of `tfjax.kernels.grouped_matmul.grouped_matmul`; `plan` overrides the tuned tiles."""
    return _run(x, weight, first, tiles, plan=plan, gated=False, how=how)


def grouped_glu(
    x: jax.Array,
    weight: jax.Array,
    first: jax.Array,
    tiles: Tiles,
    *,
    plan: Plan | None = None,
    how: Launch = PLAIN,
) -> jax.Array:
    """The device route of `tfjax.kernels.grouped_matmul.grouped_glu`."""
    return _run(x, weight, first, tiles, plan=plan, gated=True, how=how)


def _run(
    x: jax.Array,
    weight: jax.Array,
    first: jax.Array,
    tiles: Tiles,
    *,
    plan: Plan | None,
    gated: bool,
    how: Launch,
) -> jax.Array:
    inner, columns = x.shape[1], weight.shape[1] // (2 if gated else 1)
    choices = tiles.choice.shape[1] if isinstance(tiles, WindowTiles) else 0
    count = tiles.experts if isinstance(tiles, WindowTiles) else len(tiles.expert)
    plan = plan or grouped_plan_of(inner, columns, tiles.tile_rows)
    _check(x, weight, tiles, plan, columns)
    body = functools.partial(
        _body,
        plan=plan,
        steps=inner // plan.inner,
        gated=gated,
        offset=columns // plan.columns,
        choices=choices,
        alike=len(x) == plan.rows,
    )
    (out,), _ = launch(
        body,
        Grid((("column", columns // plan.columns), ("tile", count))),
        [jax.ShapeDtypeStruct((count * plan.rows, columns), BF16 if gated else jnp.float32)],
        [scalar(first), *_which(tiles), x, weight],
        name=("grouped_glu" if gated else "grouped_matmul") + f"_{inner}x{columns}",
        how=how,
    )
    return out


def _which(tiles: Tiles) -> list[jax.Array]:
    """How many rows of a window count, and what says which experts are chosen."""
    if not isinstance(tiles, WindowTiles):
        return [jnp.zeros(1, jnp.int32), tiles.expert]
    choice = tiles.choice.reshape(-1)
    missing = -len(choice) % LEAST_VECTOR
    return [scalar(tiles.count), jnp.pad(choice, (0, missing), constant_values=-1) if missing else choice]


def _check(x: jax.Array, weight: jax.Array, tiles: Tiles, plan: Plan, columns: int) -> None:
    inner = x.shape[1]
    check_bfloat16(x, weight)
    if tiles.tile_rows % LEAST_TILE:
        raise Unsupported(f"{tiles.tile_rows} rows of an expert; the device route takes multiples of {LEAST_TILE}")
    if inner % plan.inner or columns % plan.columns or tiles.tile_rows != plan.rows:
        raise Unsupported(
            f"{tiles.tile_rows} rows of an expert x {inner} x {columns} is no whole number of tiles "
            f"{plan.rows} x {plan.inner} x {plan.columns}; use the reference route"
        )


def _body(
    first_ref: Any,
    count_ref: Any,
    which_ref: Any,
    x_ref: Any,
    w_ref: Any,
    out_ref: Any,
    *,
    plan: Plan,
    steps: int,
    gated: bool,
    offset: int,
    choices: int,
    alike: bool,
) -> None:
    """One tile of the result: a tile of rows, or where tiles are alike all, by `plan.columns` columns of its expert.

    Args:
        choices: numbers of every row that say which experts it chose; 0 where each tile names its expert.
    """
    column, tile = lax.axis_index("column"), lax.axis_index("tile")
    own = 0 if alike else tile
    if choices:
        expert, live = tile, _is_chosen(tile, which_ref, count_ref[0] * choices)
    else:
        expert = which_ref[tile]
        live = expert >= 0
    matrix_ref = w_ref.at[first_ref[0] + jnp.maximum(expert, 0)]
    spec = functools.partial(block_spec, held=held_steps(plan.form))
    specs = [
        spec((plan.rows, plan.inner), lambda i: (own, i)),
        spec((plan.columns, plan.inner), lambda i: (column, i)),
    ]
    if gated:
        specs.append(spec((plan.columns, plan.inner), lambda i: (column + offset, i)))
    inputs = [x_ref] + [matrix_ref] * (len(specs) - 1)
    pipeline = functools.partial(
        plgpu.emit_pipeline, grid=(steps,), in_specs=specs, max_concurrent_steps=min(plan.stages, steps)
    )

    @pl.when(live)
    def _() -> None:
        sums, store = walked(pipeline, inputs, plan, gated=gated)
        at = out_ref.at[pl.ds(tile * plan.rows, plan.rows), pl.ds(column * plan.columns, plan.columns)]
        store(at, silu_gate(*sums) if gated else sums[0])


def _is_chosen(expert: Any, choice_ref: Any, used: Any) -> Any:
    """Whether any of the first `used` choices is this expert."""
    (size,) = choice_ref.shape
    layout = row_layout(size)
    choice = plgpu.load(choice_ref, layout=layout, optimized=False)
    place = plgpu.broadcasted_iota(jnp.int32, (size,), 0, layout=layout)
    same = (choice == expert) & (place < used)
    return jnp.sum(jnp.where(same, 1.0, 0.0)) > 0
