"""Products of a block of queries with one page, by Hopper's warpgroup instruction."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


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
