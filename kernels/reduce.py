"""Reductions of rows that do not depend on how many rows are reduced beside them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp


def tree_sum(x: jax.Array) -> jax.Array:
    """Sum over the last axis by halving: the upper half is added to the lower until one column is left.

    XLA picks the order of its own reductions by shape, which changes bits with the row count; elementwise
    additions leave it no choice.

    Shapes: [..., n] -> [..., 1], in the dtype of `x`; n is padded with zeros to a power of two.
    """
    n = x.shape[-1]
    width = 1 << (n - 1).bit_length()
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - n)])
    while width > 1:
        width //= 2
        x = x[..., :width] + x[..., width:]
    return x


def in_order(parts: jax.Array) -> jax.Array:
    """Sum of a product's parts, first to last. Shapes: [split, ...] -> [...]."""
    total: jax.Array = functools.reduce(operator.add, parts)
    return total


def in_turn(products: Sequence[jax.Array]) -> jax.Array:
    """Sum of arrays of one shape, first to last, each rounded before it is added.

    XLA on CPU would join a product and the addition of it to one rounding for some row counts.
    """
    rounded: Sequence[jax.Array] = jax.lax.optimization_barrier(list(products))
    return functools.reduce(operator.add, rounded)


def first_largest(x: jax.Array) -> jax.Array:
    """Where the largest number of the last axis stands; the first on ties.

    XLA on CPU compares pairs of value and place one by one in `argmax`; two plain reductions are several times faster.

    Shapes: [..., n] -> int32 [...]. Rows with NaN give no meaning, and maybe n.
    """
    place = jnp.arange(x.shape[-1], dtype=jnp.int32)
    return jnp.min(jnp.where(x == jnp.max(x, -1, keepdims=True), place, x.shape[-1]), -1)
