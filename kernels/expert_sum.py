"""Behind the experts: what those of a row made, weighted, the residual stream and the next norm in one pass."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from tfjax.kernels.grouped_matmul import Tiles
from tfjax.kernels.routes import Route
from tfjax.kernels.sum_norm import sum_norm


def expert_sum(
    outputs: jax.Array,
    tiles: Tiles,
    factor: jax.Array,
    x: jax.Array,
    weight: jax.Array,
    layer: jax.Array,
    count: jax.Array,
    *,
    picked: int,
    eps: float,
    route: Route = Route.REFERENCE,
) -> tuple[jax.Array, jax.Array]:
    """x + factor * output of a row's experts by rank, rounded once, and its RMSNorm by `weight[layer]`.

    Shapes: outputs float32 [tiles * tile_rows, D], of which `tiles.place` says whose they are, factor float32
    [R, picked or more], x [R, D], weight [L, D], layer and count int32 [] (rows from count on have no meaning)
    -> the new x [R, D] and its norm [R, D], both in the dtype of x.

    Raises:
        Unsupported: where the device route cannot hold a row of D.
    """
    return ROUTES[route](outputs, tiles, factor, x, weight, layer, count, picked, eps)


def _reference(
    outputs: jax.Array,
    tiles: Tiles,
    factor: jax.Array,
    x: jax.Array,
    weight: jax.Array,
    layer: jax.Array,
    count: jax.Array,
    picked: int,
    eps: float,
) -> tuple[jax.Array, jax.Array]:
    own = jnp.take(outputs, tiles.place[:, :picked].T, axis=0, mode="clip")
    # A product joined to the addition that follows would be rounded once for some row counts, on the CPU.
    parts = jax.lax.optimization_barrier(own * factor[:, :picked].T[:, :, None])
    return sum_norm(parts, x, weight, layer, count, eps=eps)


def _gpu(
    outputs: jax.Array,
    tiles: Tiles,
    factor: jax.Array,
    x: jax.Array,
    weight: jax.Array,
    layer: jax.Array,
    count: jax.Array,
    picked: int,
    eps: float,
) -> tuple[jax.Array, jax.Array]:
    from tfjax.kernels.gpu import expert_sum as gpu

    return gpu.expert_sum(outputs, tiles, factor, x, weight, layer, count, picked=picked, eps=eps)


ROUTES: dict[
    Route,
    Callable[
        [jax.Array, Tiles, jax.Array, jax.Array, jax.Array, jax.Array, jax.Array, int, float],
        tuple[jax.Array, jax.Array],
    ],
] = {Route.REFERENCE: _reference, Route.PALLAS_GPU: _gpu}
