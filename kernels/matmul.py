"""Rows times a weight matrix, every row with the same roundings whatever the row count."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tfjax.kernels.packed import Weight, expanded

MIN_ROWS = 2
"""XLA on CPU multiplies a single row by another algorithm, with other bits (and slowly in bfloat16)."""


def rows_matmul(x: jax.Array, weight: Weight) -> jax.Array:
    """`x @ weight.T` with float32 accumulation and a float32 result.

    Contracting the last axis of both is the form whose bits do not depend on the row count on CPU, from 8 inputs and
    8 outputs on. A packed weight gives the bits of the product with its expanded values.

    Shapes: x [R, in], weight [out, in] as checkpoints store it, dense or packed -> [R, out] float32.
    """
    rows = x.shape[0]
    if rows < MIN_ROWS:
        x = jnp.pad(x, ((0, MIN_ROWS - rows), (0, 0)))
    y = jax.lax.dot_general(x, expanded(weight), (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    return y[:rows]
