"""Top-k, top-p and min-p as a keep mask, without sorting.

Tokens are ordered by logit, lower id first on ties; each filter keeps a prefix of that order. The prefix is found by
bisection over the 32 bits of an integer that orders as the float does.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from tfjax.kernels.reduce import tree_sum

TINY = 2.0**-126
"""Smallest normal float32."""


def sort_key(x: jax.Array) -> jax.Array:
    """uint32 values that order as the floats do. Shapes: float32 [...] -> uint32 [...]."""
    x = jnp.where(x == 0, 0.0, x)  # -0.0 orders as 0.0
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    return jnp.where(bits >> 31 == 1, ~bits, bits | jnp.uint32(1 << 31))


def _largest_key(enough: Callable[[jax.Array], jax.Array], rows: int) -> jax.Array:
    """The largest key for which `enough(key [R, 1]) -> bool [R, 1]` holds, `enough` being true below it."""

    def one_bit(i: jax.Array, found: jax.Array) -> jax.Array:
        trial = found | (jnp.uint32(1) << (31 - i).astype(jnp.uint32))
        return jnp.where(enough(trial), trial, found)

    found: jax.Array = jax.lax.fori_loop(0, 32, one_bit, jnp.zeros((rows, 1), jnp.uint32))
    return found


def _with_first_ties(key: jax.Array, edge: jax.Array, ties: jax.Array, kept: jax.Array) -> jax.Array:
    """Kept tokens above the edge, and the first `ties` tokens on it."""
    on_edge = kept & (key == edge)
    return kept & ((key > edge) | (on_edge & (jnp.cumsum(on_edge, -1, dtype=jnp.int32) <= ties)))


def keep_top_k(key: jax.Array, top_k: jax.Array) -> jax.Array:
    """Mask of the k largest. Shapes: key uint32 [R, V], top_k int32 [R, 1] (0 is off) -> bool [R, V]."""

    def count(mask: jax.Array) -> jax.Array:
        return jnp.sum(mask, -1, keepdims=True, dtype=jnp.int32)

    edge = _largest_key(lambda t: count(key >= t) >= top_k, key.shape[0])
    kept = _with_first_ties(key, edge, top_k - count(key > edge), jnp.ones_like(key, bool))
    return (top_k <= 0) | (top_k >= key.shape[-1]) | kept


def keep_top_p(key: jax.Array, weight: jax.Array, kept: jax.Array, top_p: jax.Array) -> jax.Array:
    """Mask of the smallest prefix whose share of the kept weight reaches top_p; at least one token.

    Shapes: key uint32 [R, V], weight float32 [R, V] (unnormalised probabilities), kept bool [R, V],
    top_p float32 [R, 1] (1 is off) -> bool [R, V].
    """

    def mass(mask: jax.Array) -> jax.Array:
        return tree_sum(jnp.where(mask & kept, weight, 0.0))

    wanted = jnp.maximum(top_p * mass(kept), TINY)  # at top_p 0 too, the most likely token is wanted
    edge = _largest_key(lambda t: mass(key >= t) >= wanted, key.shape[0])
    each = jnp.max(jnp.where(kept & (key == edge), weight, 0.0), -1, keepdims=True)
    ties = jnp.ceil((wanted - mass(key > edge)) / jnp.maximum(each, TINY))
    ties = jnp.maximum(ties, 1).astype(jnp.int32)
    return (top_p >= 1) & kept | _with_first_ties(key, edge, ties, kept)


def keep_mask(scaled: jax.Array, top_k: jax.Array, top_p: jax.Array, min_p: jax.Array) -> jax.Array:
    """Tokens that may be drawn: top-k, then top-p of what is left, then min-p.

    Shapes: scaled float32 [R, V] (logits over temperature), top_k int32 [R], top_p and min_p float32 [R]
    -> bool [R, V].
    """
    key = sort_key(scaled)
    weight = jnp.exp(scaled - jnp.max(scaled, -1, keepdims=True))
    kept = keep_top_k(key, top_k[:, None])
    kept = keep_top_p(key, weight, kept, top_p[:, None])
    return kept & (weight >= min_p[:, None])
