"""A weight matrix as checkpoints store it, and an optional bias."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.kernels.matmul import rows_matmul


class Linear(nnx.Module):
    """y = x W^T + b, accumulated in float32 and rounded once.

    Shapes: weight [out, in], dense or packed; bias [out] or None.
    """

    def __init__(self, size_in: int, size_out: int, *, bias: bool, dtype: jnp.dtype):
        self.weight = nnx.Param(jnp.zeros((size_out, size_in), dtype))
        self.bias = nnx.Param(jnp.zeros(size_out, dtype)) if bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        """Shapes: x [R, in] -> [R, out] in the dtype of x."""
        y = rows_matmul(x, self.weight[...])
        if self.bias is not None:
            y = y + self.bias[...].astype(jnp.float32)
        return y.astype(x.dtype)
