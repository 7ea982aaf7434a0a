"""Rows times one layer's matrix of a stack, summed over a pinned number of parts of the inner axis."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from tfjax.kernels.matmul import rows_matmul
from tfjax.kernels.packed import PackedWeight, Weight, expanded
from tfjax.kernels.routes import Route


def layer_matmul(
    x: jax.Array,
    weight: Weight,
    layer: jax.Array,
    count: jax.Array,
    *,
    split: int,
    bias: jax.Array | None = None,
    route: Route = Route.REFERENCE,
) -> jax.Array:
    """`x @ weight[layer].T` in float32, as `split` partial sums over equal runs of the inner axis.

    Whoever reads the parts adds them in order (`sum_norm`, `rope_write`). `split` is part of the arithmetic; every
    other choice of the device route is not. A packed weight gives the bits of its values as a dense bfloat16 stack.

    `bias[layer]` is added to the first part once that part is summed, in float32. The other parts keep their bits, the
    readers' order stays as it is, and no accumulator begins with a value that a matrix unit would add by rules of its
    own.

    Shapes: x [R, in], weight [L, out, in] as checkpoints store each layer, dense or packed, bias [L, out], layer
    int32 [], count int32 [] (rows from there on have no meaning) -> float32 [split, R, out].

    Raises:
        Unsupported: where the device route has no tile for these sizes, or cannot expand a packed weight's form.
    """
    return ROUTES[route](x, weight, layer, count, split, bias)


def layer_glu(
    x: jax.Array,
    weight: Weight,
    layer: jax.Array,
    count: jax.Array,
    *,
    bias: jax.Array | None = None,
    route: Route = Route.REFERENCE,
) -> jax.Array:
    """`silu(gate) * up` of one product with gate over up; each is rounded to the dtype of x first, its bias added.

    Shapes: x [R, in], weight [L, 2 * inner, in] with the gate's rows first, dense or packed, bias [L, 2 * inner],
    layer and count int32 [] -> [R, inner] in the dtype of x.

    Raises:
        Unsupported: as `layer_matmul`.
    """
    return GLU_ROUTES[route](x, weight, layer, count, bias)


def _matmul_reference(
    x: jax.Array, weight: Weight, layer: jax.Array, count: jax.Array, split: int, bias: jax.Array | None
) -> jax.Array:
    size, matrix = x.shape[1] // split, _matrix(weight, layer)
    runs = [slice(part * size, (part + 1) * size) for part in range(split)]
    parts = [rows_matmul(x[:, run], matrix[:, run]) for run in runs]
    if bias is not None:
        parts[0] = parts[0] + bias[layer].astype(jnp.float32)
    return jnp.stack(parts)


def _glu_reference(
    x: jax.Array, weight: Weight, layer: jax.Array, count: jax.Array, bias: jax.Array | None
) -> jax.Array:
    both = rows_matmul(x, _matrix(weight, layer))
    if bias is not None:
        both = both + bias[layer].astype(jnp.float32)
    gate, up = jnp.split(both.astype(x.dtype).astype(jnp.float32), 2, -1)
    return (jax.nn.silu(gate) * up).astype(x.dtype)


def _matrix(weight: Weight, layer: jax.Array) -> jax.Array:
    """The layer's matrix as an array."""
    return expanded(weight.at(layer)) if isinstance(weight, PackedWeight) else weight[layer]


def _matmul_gpu(
    x: jax.Array, weight: Weight, layer: jax.Array, count: jax.Array, split: int, bias: jax.Array | None
) -> jax.Array:
    if isinstance(weight, PackedWeight):
        from tfjax.kernels.gpu import packed_matmul as packed

        return packed.packed_matmul(x, weight, layer, count, split=split, bias=bias)
    from tfjax.kernels.gpu import layer_matmul as gpu

    return gpu.layer_matmul(x, weight, layer, count, split=split, bias=bias)


def _glu_gpu(x: jax.Array, weight: Weight, layer: jax.Array, count: jax.Array, bias: jax.Array | None) -> jax.Array:
    if isinstance(weight, PackedWeight):
        from tfjax.kernels.gpu import packed_matmul as packed

        return packed.packed_glu(x, weight, layer, count, bias=bias)
    from tfjax.kernels.gpu import layer_matmul as gpu

    return gpu.layer_glu(x, weight, layer, count, bias=bias)


ROUTES: dict[Route, Callable[[jax.Array, Weight, jax.Array, jax.Array, int, jax.Array | None], jax.Array]] = {
    Route.REFERENCE: _matmul_reference,
    Route.PALLAS_GPU: _matmul_gpu,
}

GLU_ROUTES: dict[Route, Callable[[jax.Array, Weight, jax.Array, jax.Array, jax.Array | None], jax.Array]] = {
    Route.REFERENCE: _glu_reference,
    Route.PALLAS_GPU: _glu_gpu,
}
