"""Products of a block of queries with one page, by Hopper's warpgroup instruction, and the tiles that they take."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.gpu.tiles import swizzled
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.window_attention import BLOCK_ROWS

STAGES = 2
OUT_COLUMNS = 128
"""Of a block's result that stand in shared memory at once: beside the pages of heads of 256 the whole has no room."""


class Memory(NamedTuple):
    """A block's shared memory and barriers, in the order of `block_memory`."""

    q: Any
    keys: Any
    values: Any
    weight: Any
    out: Any
    keys_ready: Any
    values_ready: Any


def block_memory(size: int) -> list[Any]:
    """What a block takes for heads of this size."""
    tile = swizzled(size, 2)
    return [
        plgpu.SMEM((BLOCK_ROWS, size), jnp.bfloat16, transforms=tile),
        plgpu.SMEM((STAGES, PAGE_ROWS, size), jnp.bfloat16, transforms=tile),
        plgpu.SMEM((STAGES, PAGE_ROWS, size), jnp.bfloat16, transforms=tile),
        plgpu.SMEM((BLOCK_ROWS, PAGE_ROWS), jnp.bfloat16, transforms=swizzled(PAGE_ROWS, 2)),
        plgpu.SMEM((BLOCK_ROWS, min(size, OUT_COLUMNS)), jnp.float32),
        plgpu.Barrier(num_barriers=STAGES),
        plgpu.Barrier(num_barriers=STAGES),
    ]


def scores(q: Any, keys: Any) -> Any:
    """`q @ keys.T` of two tiles in shared memory."""

    def product(score: Any) -> Any:
        plgpu.wgmma(score, q, keys.T)
        return score[...]

    return pl.run_scoped(product, plgpu.WGMMAAccumulatorRef((q.shape[0], keys.shape[0]), jnp.float32))


def clear_behind(values: Any, last: Any) -> None:
    """Zero the values of a page's places after `last`."""
    value = plgpu.load(values, layout=plgpu.Layout.WGMMA)
    place = plgpu.broadcasted_iota(jnp.int32, values.shape, 0, layout=plgpu.Layout.WGMMA)
    values[...] = jnp.where(place <= last, value, jnp.zeros_like(value))
    plgpu.commit_smem()


def mixed_values(mixed: Any, weight: Any, values: Any, weight_tile: Any, interpreted: bool) -> Any:
    """`mixed + weight @ values`."""
    if interpreted:  # The interpreter knows neither weights in registers nor sums that go on.
        weight_tile[...] = weight
        plgpu.commit_smem()

        def alone(out: Any) -> Any:
            plgpu.wgmma(out, weight_tile, values)
            return out[...]

        return mixed + pl.run_scoped(alone, plgpu.WGMMAAccumulatorRef(mixed.shape, jnp.float32))

    def onto(out: Any) -> None:
        plgpu.wgmma(out, weight, values)
        plgpu.wgmma_wait(0)

    return pl.run_state(onto)(plgpu.WGMMAAccumulatorRef.init(mixed))
