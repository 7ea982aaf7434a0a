"""Rotary position embedding, half-split or in interleaved pairs."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def rotate(x: jax.Array, position: jax.Array, inverse_frequency: jax.Array, *, interleaved: bool = False) -> jax.Array:
    """Rotate pair i of each head by position * inverse_frequency[i], in float32.

    Pair i is (i, i + H/2), or (2i, 2i + 1) where `interleaved`.

    Shapes: x [R, heads, H], position int32 [R], inverse_frequency float32 [H/2] -> [R, heads, H] in the dtype of x.
    """
    angle = position[:, None].astype(jnp.float32) * inverse_frequency
    return turned_heads(x, jnp.cos(angle), jnp.sin(angle), interleaved=interleaved)


def turned_heads(x: jax.Array, cos: jax.Array, sin: jax.Array, *, interleaved: bool = False) -> jax.Array:
    """As `rotate`, by known angles. Shapes: x [R, heads, H]; cos, sin float32 [R, H/2] -> as x."""
    cos, sin = cos[:, None], sin[:, None]
    wide = x.astype(jnp.float32)
    low, high = (wide[..., 0::2], wide[..., 1::2]) if interleaved else jnp.split(wide, 2, -1)
    turned = [low * cos - high * sin, high * cos + low * sin]
    joined = jnp.stack(turned, -1).reshape(x.shape) if interleaved else jnp.concatenate(turned, -1)
    return joined.astype(x.dtype)
