"""The rows of an embedding that tokens name."""

from __future__ import annotations

from collections.abc import Callable

import jax

from tfjax.kernels.routes import Route


def embed_rows(table: jax.Array, token: jax.Array, count: jax.Array, *, route: Route = Route.REFERENCE) -> jax.Array:
    """Shapes: table [V, D], token int32 [R], count int32 [] (rows from there on have no meaning) -> [R, D].

    Raises:
        Unsupported: where the device route cannot hold a row of D.
    """
    return ROUTES[route](table, token, count)


def _reference(table: jax.Array, token: jax.Array, count: jax.Array) -> jax.Array:
    return table[token]


def _gpu(table: jax.Array, token: jax.Array, count: jax.Array) -> jax.Array:
    from tfjax.kernels.gpu import embed_rows as gpu

    return gpu.embed_rows(table, token, count)


ROUTES: dict[Route, Callable[[jax.Array, jax.Array, jax.Array], jax.Array]] = {
    Route.REFERENCE: _reference,
    Route.PALLAS_GPU: _gpu,
}
