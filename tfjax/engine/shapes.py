"""Shapes of arrays that programs are compiled for."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def int32(*shape: int) -> jax.ShapeDtypeStruct:
    """An int32 array of this shape."""
    return jax.ShapeDtypeStruct(shape, jnp.int32)
