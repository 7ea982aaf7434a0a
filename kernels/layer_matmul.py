"""Rows times one layer's matrix of a stack, summed over a pinned number of parts of the inner axis."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from tfjax.kernels.matmul import rows_matmul
from tfjax.kernels.routes import Route


def layer_matmul(
    x: jax.Array, weight: jax.Array, layer: jax.Array, count: jax.Array, *, split: int, route: Route = Route.REFERENCE
) -> jax.Array:
    """`x @ weight[layer].T` in float32, as `split` partial sums over equal runs of the inner axis.

    Whoever reads the parts adds them in order (`sum_norm`, `rope_write`). `split` is part of the arithmetic; every
    other choice of the device route is not.

    Shapes: x [R, in], weight [L, out, in] as checkpoints store each layer, layer int32 [], count int32 [] (rows from
    there on have no meaning) -> float32 [split, R, out].

    Raises:
        Unsupported: where the device route has no tile for these sizes.
    """
    return ROUTES[route](x, weight, layer, count, split)


def layer_glu(
    x: jax.Array, weight: jax.Array, layer: jax.Array, count: jax.Array, *, route: Route = Route.REFERENCE
) -> jax.Array:
    """`silu(gate) * up` of one product with gate over up; each is rounded to the dtype of x first.

    Shapes: x [R, in], weight [L, 2 * inner, in] with the gate's rows first, layer and count int32 [] -> [R, inner] in
    the dtype of x.

    Raises:
        Unsupported: as `layer_matmul`.
    """
    return GLU_ROUTES[route](x, weight, layer, count)


def _matmul_reference(x: jax.Array, weight: jax.Array, layer: jax.Array, count: jax.Array, split: int) -> jax.Array:
    size = x.shape[1] // split
    parts = [slice(part * size, (part + 1) * size) for part in range(split)]
    return jnp.stack([rows_matmul(x[:, part], weight[layer][:, part]) for part in parts])


def _glu_reference(x: jax.Array, weight: jax.Array, layer: jax.Array, count: jax.Array) -> jax.Array:
    both = rows_matmul(x, weight[layer]).astype(x.dtype).astype(jnp.float32)
    gate, up = jnp.split(both, 2, -1)
    return (jax.nn.silu(gate) * up).astype(x.dtype)


def _matmul_gpu(x: jax.Array, weight: jax.Array, layer: jax.Array, count: jax.Array, split: int) -> jax.Array:
    from tfjax.kernels.gpu import layer_matmul as gpu

    return gpu.layer_matmul(x, weight, layer, count, split=split)


def _glu_gpu(x: jax.Array, weight: jax.Array, layer: jax.Array, count: jax.Array) -> jax.Array:
    from tfjax.kernels.gpu import layer_matmul as gpu

    return gpu.layer_glu(x, weight, layer, count)


ROUTES: dict[Route, Callable[[jax.Array, jax.Array, jax.Array, jax.Array, int], jax.Array]] = {
    Route.REFERENCE: _matmul_reference,
    Route.PALLAS_GPU: _matmul_gpu,
}

GLU_ROUTES: dict[Route, Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]] = {
    Route.REFERENCE: _glu_reference,
    Route.PALLAS_GPU: _glu_gpu,
}
