"""Sums in a fixed order, so that a row's sum does not depend on how many rows are summed beside it."""

from __future__ import annotations

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
