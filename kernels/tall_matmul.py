"""Products of a prompt's rows: `layer_matmul` with its parts added up, and `layer_glu`, fast for many rows.

Their bits are those of the products that generated rows take, so that a prompt's rows and a reply's agree.
"""

from __future__ import annotations

from collections.abc import Callable

import jax

from tfjax.kernels.layer_matmul import layer_glu, layer_matmul
from tfjax.kernels.reduce import in_order
from tfjax.kernels.routes import Route


def tall_matmul(
    x: jax.Array,
    weight: jax.Array,
    layer: jax.Array,
    count: jax.Array,
    *,
    split: int,
    bias: jax.Array | None = None,
    route: Route = Route.REFERENCE,
) -> jax.Array:
    """The parts of `layer_matmul` added in order, as whoever reads parts adds them.

    With `[None]` the result stands for the parts: a reader of one part then has the bits that it has of several.

    Shapes: as `layer_matmul`, the weight dense -> float32 [R, out].

    Raises:
        Unsupported: where the device route has no tile for these sizes.
    """
    return ROUTES[route](x, weight, layer, count, split, bias)


def tall_glu(
    x: jax.Array,
    weight: jax.Array,
    layer: jax.Array,
    count: jax.Array,
    *,
    bias: jax.Array | None = None,
    route: Route = Route.REFERENCE,
) -> jax.Array:
    """`layer_glu` of a dense weight. Shapes and errors: as there."""
    return GLU_ROUTES[route](x, weight, layer, count, bias)


def _matmul_reference(
    x: jax.Array, weight: jax.Array, layer: jax.Array, count: jax.Array, split: int, bias: jax.Array | None
) -> jax.Array:
    return in_order(layer_matmul(x, weight, layer, count, split=split, bias=bias))


def _glu_reference(
    x: jax.Array, weight: jax.Array, layer: jax.Array, count: jax.Array, bias: jax.Array | None
) -> jax.Array:
    return layer_glu(x, weight, layer, count, bias=bias)


def _matmul_gpu(
    x: jax.Array, weight: jax.Array, layer: jax.Array, count: jax.Array, split: int, bias: jax.Array | None
) -> jax.Array:
    from tfjax.kernels.gpu import tall_matmul as gpu

    return gpu.tall_matmul(x, weight, layer, count, split=split, bias=bias)


def _glu_gpu(x: jax.Array, weight: jax.Array, layer: jax.Array, count: jax.Array, bias: jax.Array | None) -> jax.Array:
    from tfjax.kernels.gpu import tall_matmul as gpu

    return gpu.tall_glu(x, weight, layer, count, bias=bias)


ROUTES: dict[Route, Callable[[jax.Array, jax.Array, jax.Array, jax.Array, int, jax.Array | None], jax.Array]] = {
    Route.REFERENCE: _matmul_reference,
    Route.PALLAS_GPU: _matmul_gpu,
}

GLU_ROUTES: dict[Route, Callable[[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array | None], jax.Array]] = {
    Route.REFERENCE: _glu_reference,
    Route.PALLAS_GPU: _glu_gpu,
}
