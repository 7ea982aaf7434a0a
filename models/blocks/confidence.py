"""DSpark's confidence head: the chance that a draft lands, given that those before it did."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.kernels.reduce import tree_sum


class ConfidenceHead(nnx.Module):
    """sigmoid((w . x + b) / T_k), in float32 whatever the dtype of the model.

    T_k belongs to the draft's place k in the block; without temperatures it is 1. Source: DSpark paper, sequential
    temperature scaling.

    Shapes: weight float32 [1, size], bias float32 [1].
    """

    def __init__(self, size: int, temperatures: Sequence[float] = ()):
        self.weight = nnx.Param(jnp.zeros((1, size), jnp.float32))
        self.bias = nnx.Param(jnp.zeros(1, jnp.float32))
        self.temperatures = tuple(temperatures)

    def __call__(self, x: jax.Array, place: jax.Array | int) -> jax.Array:
        """Shapes: x [..., size], place int32 broadcast to [...], from 0 -> float32 [...], between 0 and 1."""
        raw = tree_sum(x.astype(jnp.float32) * self.weight[...][0])[..., 0] + self.bias[...][0]
        if self.temperatures:
            raw = raw / jnp.asarray(self.temperatures, jnp.float32)[place]
        return jax.nn.sigmoid(raw)
