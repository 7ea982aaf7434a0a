"""RMSNorm with its weight."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.kernels.rms_norm import rms_norm


class RMSNorm(nnx.Module):
    """Shapes: weight [size]; applies to the last axis."""

    def __init__(self, size: int, eps: float, dtype: jnp.dtype):
        self.weight = nnx.Param(jnp.ones(size, dtype))
        self.eps = eps

    def __call__(self, x: jax.Array) -> jax.Array:
        return rms_norm(x, self.weight[...], self.eps)
