"""Products of many rows at the speed of the matrix units, with the bits of `layer_matmul` and `layer_glu`.

A cluster of two blocks makes 256 rows of some columns. In each block two warpgroups multiply 64 rows apiece and a third
brings tiles, those of the weights for both blocks at once. Every row is walked along the inner axis in the order of
the other forms, part after part; a part's sum is added to those before it in registers, in the readers' order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.gpu import layer_matmul as few
from tfjax.kernels.gpu.launch import PLAIN, Grid, Launch, launch, scalar
from tfjax.kernels.gpu.plans import TALLEST_ROWS, Plan, tall_plan_of
from tfjax.kernels.gpu.tiles import check_bfloat16, put, swizzled
from tfjax.kernels.reduce import in_order
from tfjax.kernels.routes import Unsupported

BF16 = jnp.bfloat16

CLUSTER = 2
"""Blocks that share tiles of weights."""

MULTIPLIERS = 2
"""Warpgroups of a block that multiply; one more brings tiles."""

WARPGROUP_ROWS = 64
BLOCK_ROWS = MULTIPLIERS * WARPGROUP_ROWS

MULTIPROCESSORS = 132
"""Of an H100 and an H200: as many blocks run at a time, each making tile after tile."""

BRINGING_REGISTERS, MULTIPLYING_REGISTERS = 40, 232


def tall_matmul(
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
    """The device route of `tfjax.kernels.tall_matmul.tall_matmul`; `plan` overrides the tuned tiles.

    Fewer rows than a tile has are left to the forms for few.
    """
    if x.shape[0] < TALLEST_ROWS:
        return in_order(few.layer_matmul(x, weight, layer, count, split=split, bias=bias, how=how))
    return _run(x, weight, layer, count, split=split, bias=bias, plan=plan, gated=False, how=how)


def tall_glu(
    x: jax.Array,
    weight: jax.Array,
    layer: jax.Array,
    count: jax.Array,
    *,
    bias: jax.Array | None = None,
    plan: Plan | None = None,
    how: Launch = PLAIN,
) -> jax.Array:
    """The device route of `tfjax.kernels.tall_matmul.tall_glu`."""
    if x.shape[0] < TALLEST_ROWS:
        return few.layer_glu(x, weight, layer, count, bias=bias, how=how)
    return _run(x, weight, layer, count, split=1, bias=bias, plan=plan, gated=True, how=how)


class _Sizes(NamedTuple):
    """Of one product: tiles along the columns, parts, the steps of each, and matrices that stand side by side."""

    plan: Plan
    tiles: int
    split: int
    steps: int
    matrices: int

    @property
    def all_steps(self) -> int:
        return self.split * self.steps


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
    used, matrices = x.shape[0], 2 if gated else 1
    x = jnp.pad(x, ((0, -used % TALLEST_ROWS), (0, 0)))
    rows, inner = x.shape
    columns = weight.shape[1] // matrices
    plan = plan or tall_plan_of(inner, columns, gated=gated)
    _check(x, weight, split, plan, columns)
    sizes = _Sizes(plan, columns // plan.columns, split, inner // split // plan.inner, matrices)
    clusters = min(MULTIPROCESSORS // CLUSTER, rows // TALLEST_ROWS * sizes.tiles)
    (out,), _ = launch(
        functools.partial(_body, sizes=sizes, clusters=clusters),
        Grid((("block", clusters),), _scratch(sizes), warpgroups=MULTIPLIERS + 1, cluster=CLUSTER),
        [jax.ShapeDtypeStruct((rows, columns), BF16 if gated else jnp.float32)],
        [scalar(layer), scalar(count), x, weight, *([] if bias is None else [bias])],
        name=("tall_glu" if gated else "tall_matmul") + f"_{inner}x{columns}",
        how=how,
    )
    return out[:used]


def _check(x: jax.Array, weight: jax.Array, split: int, plan: Plan, columns: int) -> None:
    inner = x.shape[1]
    check_bfloat16(x, weight)
    if inner % (split * plan.inner) or columns % plan.columns:
        raise Unsupported(
            f"{inner} x {columns} in {split} parts is no whole number of tiles {plan.inner} x {plan.columns}; "
            "use the reference route"
        )


def _scratch(sizes: _Sizes) -> list[Any]:
    """Tiles of rows and of each matrix, and the barriers of tiles that have come and of those that may be replaced."""
    plan = sizes.plan
    stages = min(plan.stages, sizes.all_steps)

    def tiles(height: int) -> Any:
        return plgpu.SMEM((stages, height, plan.inner), BF16, transforms=swizzled(plan.inner, 2))

    return [
        tiles(BLOCK_ROWS),
        *[tiles(plan.columns)] * sizes.matrices,
        plgpu.Barrier(num_arrivals=1 + sizes.matrices, num_barriers=stages),
        plgpu.ClusterBarrier(collective_axes=("cluster",), num_arrivals=MULTIPLIERS, num_barriers=stages),
    ]


def _body(layer_ref: Any, count_ref: Any, x_ref: Any, w_ref: Any, *refs: Any, sizes: _Sizes, clusters: int) -> None:
    """All tiles of one block: 128 rows each, the other half of the cluster's 256 being the other block's."""
    *bias_ref, out_ref = refs[: -3 - sizes.matrices]
    x_s, *w_s, come, free = refs[-3 - sizes.matrices :]
    live = (count_ref[0] + TALLEST_ROWS - 1) // TALLEST_ROWS
    block, half, warpgroup = (lax.axis_index(axis) for axis in ("block", "cluster", "warpgroup"))
    turns = (live * sizes.tiles - block + clusters - 1) // clusters

    def at(turn: Any) -> tuple[Any, Any]:
        """First row and column tile. Rows go first, so that blocks that run together share tiles of weights."""
        number = block + turn * clusters
        return (number % live) * TALLEST_ROWS + half * BLOCK_ROWS, number // live

    @pl.when(warpgroup == MULTIPLIERS)
    def _() -> None:
        plgpu.set_max_registers(BRINGING_REGISTERS, action="decrease")
        _bring_all(x_ref, w_ref.at[layer_ref[0]], x_s, w_s, come, free, at, turns, sizes)

    @pl.when(warpgroup < MULTIPLIERS)
    def _() -> None:
        plgpu.set_max_registers(MULTIPLYING_REGISTERS, action="increase")
        own = pl.ds(warpgroup * WARPGROUP_ROWS, WARPGROUP_ROWS)

        def tile(turn: Any, nothing: None) -> None:
            row, column = at(turn)
            sums: tuple[Any, ...] = ()
            for part in range(sizes.split):
                first = (turn * sizes.split + part) * sizes.steps
                found = _part(x_s, w_s, come, free, own, first, sizes)
                if part == 0 and bias_ref:
                    found = _biased(found, bias_ref[0].at[layer_ref[0]], column, sizes)
                sums = tuple(a + b for a, b in zip(sums, found, strict=True)) if part else found
            rows = pl.ds(row + warpgroup * WARPGROUP_ROWS, WARPGROUP_ROWS)
            value = few.silu_gate(*sums) if sizes.matrices == 2 else sums[0]
            put(out_ref.at[rows, pl.ds(column * sizes.plan.columns, sizes.plan.columns)], value)

        lax.fori_loop(0, turns, tile, None)


def _bring_all(
    x_ref: Any,
    matrix_ref: Any,
    x_s: Any,
    w_s: Any,
    come: Any,
    free: Any,
    at: Callable[[Any], tuple[Any, Any]],
    turns: Any,
    sizes: _Sizes,
) -> None:
    """Tile after tile, as soon as one of both blocks' places is free."""
    plan, stages = sizes.plan, x_s.shape[0]

    def bring(number: Any, nothing: None) -> None:
        row, column = at(number // sizes.all_steps)
        slot, run = number % stages, pl.ds(number % sizes.all_steps * plan.inner, plan.inner)

        @pl.when(number >= stages)
        def _() -> None:
            plgpu.barrier_wait(free.at[slot])

        plgpu.copy_gmem_to_smem(x_ref.at[pl.ds(row, BLOCK_ROWS), run], x_s.at[slot], come.at[slot])
        for matrix, tile in enumerate(w_s):
            columns = pl.ds((column + matrix * sizes.tiles) * plan.columns, plan.columns)
            plgpu.copy_gmem_to_smem(
                matrix_ref.at[columns, run], tile.at[slot], come.at[slot], collective_axes=("cluster",)
            )

    last = turns * sizes.all_steps
    lax.fori_loop(0, last, bring, None)

    # A block must not end while the other may still tell it of a free place.
    def wait(number: Any, nothing: None) -> None:
        plgpu.barrier_wait(free.at[number % stages])

    lax.fori_loop(jnp.maximum(last - stages, 0), last, wait, None)


def _part(x_s: Any, w_s: Any, come: Any, free: Any, own: Any, first: Any, sizes: _Sizes) -> tuple[Any, ...]:
    """The sums of one part by one warpgroup."""
    stages = x_s.shape[0]

    def walk(*sums: Any) -> Any:
        def step(number: Any, nothing: None) -> None:
            slot = (first + number) % stages
            plgpu.barrier_wait(come.at[slot])
            for total, tile in zip(sums, w_s, strict=True):
                plgpu.wgmma(total, x_s.at[slot].at[own], tile.at[slot].T)
            # The step before is done with its tiles when only this one's products are left.
            plgpu.wgmma_wait(len(w_s))

            @pl.when(number > 0)
            def _() -> None:
                plgpu.barrier_arrive(free.at[(first + number - 1) % stages])

        lax.fori_loop(0, sizes.steps, step, None)
        plgpu.wgmma_wait(0)
        plgpu.barrier_arrive(free.at[(first + sizes.steps - 1) % stages])
        return tuple(total[...] for total in sums)

    kind = plgpu.WGMMAAccumulatorRef((WARPGROUP_ROWS, sizes.plan.columns), jnp.float32)
    found: tuple[Any, ...] = pl.run_scoped(walk, *[kind] * len(w_s))
    return found


def _biased(sums: tuple[Any, ...], bias_ref: Any, column: Any, sizes: _Sizes) -> tuple[Any, ...]:
    columns = sizes.plan.columns

    def one(matrix: int, total: Any) -> Any:
        ref = bias_ref.at[pl.ds((column + matrix * sizes.tiles) * columns, columns)]
        vector = plgpu.load(ref, layout=plgpu.Layout.WGMMA.reduce(0), optimized=False).astype(jnp.float32)
        wide = lax.broadcast_in_dim(vector, (WARPGROUP_ROWS, columns), (1,))
        return total + plgpu.layout_cast(wide, plgpu.Layout.WGMMA)

    return tuple(one(matrix, total) for matrix, total in enumerate(sums))
