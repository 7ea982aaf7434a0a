"""Rotary position embedding, half-split or in interleaved pairs."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def rotate(x: jax.Array, position: jax.Array, inverse_frequency: jax.Array, *, interleaved: bool = False) -> jax.Array:
    """Rotate pair i of each head by position * inverse_frequency[i], in float32.

    Pair i is (i, i + H/2), or (2i, 2i + 1) where `interleaved`.

    Shapes: x [R, heads, H], position int32 [R], inverse_frequency float32 [H/2] -> [R, heads, H] in the dtype of x.
    """
    angle = position[:, None, None].astype(jnp.float32) * inverse_frequency
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    wide = x.astype(jnp.float32)
    if interleaved:
        low, high = wide[..., 0::2], wide[..., 1::2]
        turned = jnp.stack([low * cos - high * sin, high * cos + low * sin], -1).reshape(x.shape)
    else:
        low, high = jnp.split(wide, 2, -1)
        turned = jnp.concatenate([low * cos - high * sin, high * cos + low * sin], -1)
    return turned.astype(x.dtype)
