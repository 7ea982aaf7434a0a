"""Between two products: the partial sums, the residual stream and the next norm in one pass over a row."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from tfjax.kernels.rms_norm import rms_norm
from tfjax.kernels.routes import Route


def sum_norm(
    parts: jax.Array,
    x: jax.Array,
    weight: jax.Array,
    layer: jax.Array,
    count: jax.Array,
    *,
    eps: float,
    route: Route = Route.REFERENCE,
) -> tuple[jax.Array, jax.Array]:
    """x + the parts in order, rounded once, and its RMSNorm by `weight[layer]`.

    Shapes: parts float32 [split, R, D] (split may be 0), x [R, D], weight [L, D], layer and count int32 [] (rows from
    count on have no meaning) -> the new x [R, D] and its norm [R, D], both in the dtype of x.

    Raises:
        Unsupported: where the device route cannot hold a row of D.
    """
    return ROUTES[route](parts, x, weight, layer, count, eps)


def _reference(
    parts: jax.Array, x: jax.Array, weight: jax.Array, layer: jax.Array, count: jax.Array, eps: float
) -> tuple[jax.Array, jax.Array]:
    total = jnp.zeros(x.shape, jnp.float32)
    for part in parts:
        total = total + part
    summed = (x.astype(jnp.float32) + total).astype(x.dtype)
    return summed, rms_norm(summed, weight[layer], eps)


def _gpu(
    parts: jax.Array, x: jax.Array, weight: jax.Array, layer: jax.Array, count: jax.Array, eps: float
) -> tuple[jax.Array, jax.Array]:
    from tfjax.kernels.gpu import sum_norm as gpu

    return gpu.sum_norm(parts, x, weight, layer, count, eps=eps)


ROUTES: dict[
    Route,
    Callable[[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array, float], tuple[jax.Array, jax.Array]],
] = {Route.REFERENCE: _reference, Route.PALLAS_GPU: _gpu}
