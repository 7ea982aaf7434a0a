"""Rotary position embedding, half-split form."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def rotate(x: jax.Array, position: jax.Array, inverse_frequency: jax.Array) -> jax.Array:
    """Rotate pairs (i, i + H/2) of each head by position * inverse_frequency[i], in float32.

    Shapes: x [R, heads, H], position int32 [R], inverse_frequency float32 [H/2] -> [R, heads, H] in the dtype of x.
    """
    angle = position[:, None, None].astype(jnp.float32) * inverse_frequency
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    low, high = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], -1).astype(x.dtype)
