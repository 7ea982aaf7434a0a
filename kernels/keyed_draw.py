"""A token of each row: the largest logit, or the largest with noise keyed by seed, position and token."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfjax.kernels.noise import gumbel
from tfjax.kernels.reduce import first_largest
from tfjax.kernels.routes import Route

NOT_FINITE = -1
"""Drawn where a row's logits are not all finite."""


LARGEST = 3.4028234663852886e38
"""Of float32."""

LOWEST = -LARGEST
"""Stands for the peak where all is masked: -inf less it is -inf, and less -inf no number."""


class DrawKeys(NamedTuple):
    """What decides a row's token beside its logits. Everything is per row [R] but `seed` [R, 2].

    Attributes:
        temperature: float32, 0 draws the largest logit.
        seed: uint32, low and high word.
        position: int32, absolute position that the drawn token will take.
        masked: bool, -inf marks tokens that cannot be drawn; in other rows it is a number that is not finite.
    """

    temperature: jax.Array
    seed: jax.Array
    position: jax.Array
    masked: jax.Array


def keyed_draw(
    logits: jax.Array,
    keys: DrawKeys,
    count: jax.Array,
    ids: jax.Array | None = None,
    *,
    route: Route = Route.REFERENCE,
) -> jax.Array:
    """The column of the largest logit over temperature plus noise, the first on ties; NOT_FINITE where a row is not.

    The routes round scaled logits differently, so that of two tokens which are level but for a rounding each may draw
    another. Either gives a row the same token whatever rows are beside it.

    Shapes: logits float32 [R, C], count int32 [] (rows from there on have no meaning), ids int32 [C] (each column's
    token; None where every column is its own) -> int32 [R].

    Raises:
        Unsupported: where the device route cannot cut C in blocks.
    """
    return ROUTES[route](logits, keys, count, ids)


def scaled_below_peak(logits: jax.Array, temperature: jax.Array) -> jax.Array:
    """Logits over temperature. Shapes: [R, V], [R] -> [R, V].

    Below the peak all is negative, so that even the smallest temperature overflows to -inf and never to a tie.
    """
    peak = jnp.maximum(jnp.max(logits, -1, keepdims=True), LOWEST)
    return (logits - peak) / jnp.where(temperature > 0, temperature, 1)[:, None]


def _reference(logits: jax.Array, keys: DrawKeys, count: jax.Array, ids: jax.Array | None) -> jax.Array:
    tokens = jnp.arange(logits.shape[1]) if ids is None else ids
    sampled = keys.temperature > 0

    def noisy(x: jax.Array) -> jax.Array:
        return scaled_below_peak(x, keys.temperature) + gumbel(keys.seed, keys.position, tokens)

    greedy = first_largest(logits)
    # Noise costs more than all else, and often no row asks for it.
    column = jax.lax.cond(
        jnp.any(sampled), lambda x: jnp.where(sampled, first_largest(noisy(x)), greedy), lambda x: greedy, logits
    )
    sound = jnp.isfinite(logits) | (keys.masked[:, None] & (logits == -jnp.inf))
    return jnp.where(jnp.all(sound, -1), column, NOT_FINITE)


def _gpu(logits: jax.Array, keys: DrawKeys, count: jax.Array, ids: jax.Array | None) -> jax.Array:
    from tfjax.kernels.gpu import keyed_draw as gpu

    return gpu.keyed_draw(logits, keys, count, ids)


ROUTES: dict[Route, Callable[[jax.Array, DrawKeys, jax.Array, jax.Array | None], jax.Array]] = {
    Route.REFERENCE: _reference,
    Route.PALLAS_GPU: _gpu,
}
