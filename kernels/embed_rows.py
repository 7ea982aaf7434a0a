"""The rows of an embedding that tokens name."""

from __future__ import annotations

from collections.abc import Callable

import jax

from tfjax.kernels.packed import PackedWeight, Weight
from tfjax.kernels.routes import Route


def embed_rows(table: Weight, token: jax.Array, count: jax.Array, *, route: Route = Route.REFERENCE) -> jax.Array:
    """The rows, of a packed table with the bits of its values.

    Shapes: table [V, D], token int32 [R], count int32 [] (rows from there on have no meaning) -> [R, D].

    Raises:
        Unsupported: where the device route cannot hold a row of D, or cannot expand a packed table's form.
    """
    return ROUTES[route](table, token, count)


def _reference(table: Weight, token: jax.Array, count: jax.Array) -> jax.Array:
    rows: jax.Array = table[token]
    return rows


def _gpu(table: Weight, token: jax.Array, count: jax.Array) -> jax.Array:
    from tfjax.kernels.gpu import embed_rows as gpu

    if isinstance(table, PackedWeight):
        return gpu.embed_packed_rows(table, token, count)
    return gpu.embed_rows(table, token, count)


ROUTES: dict[Route, Callable[[Weight, jax.Array, jax.Array], jax.Array]] = {
    Route.REFERENCE: _reference,
    Route.PALLAS_GPU: _gpu,
}
