"""The gated feed-forward block."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.models.blocks.linear import Linear


class GatedMLP(nnx.Module):
    """down(silu(gate x) * up x), gate and up in one product (gate first)."""

    def __init__(self, hidden: int, inner: int, *, bias: bool, dtype: jnp.dtype):
        self.gate_up = Linear(hidden, 2 * inner, bias=bias, dtype=dtype)
        self.down = Linear(inner, hidden, bias=bias, dtype=dtype)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Shapes: x [R, D] -> [R, D]."""
        gate, up = jnp.split(self.gate_up(x), 2, -1)
        gated = jax.nn.silu(gate.astype(jnp.float32)) * up.astype(jnp.float32)
        return self.down(gated.astype(x.dtype))
