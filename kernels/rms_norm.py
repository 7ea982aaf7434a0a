"""RMSNorm with its sum in a fixed order."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tfjax.kernels.reduce import tree_sum


def rms_norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    """Scale each row to unit mean square in float32, round to the dtype of `x`, then multiply by `weight`.

    The order (normalise, round, multiply) is that of Llama in Hugging Face transformers.

    Shapes: x [..., n], weight [n] -> [..., n] in the dtype of x.
    """
    wide = x.astype(jnp.float32)
    mean_square = tree_sum(wide * wide) / x.shape[-1]
    return (wide * jax.lax.rsqrt(mean_square + eps)).astype(x.dtype) * weight
