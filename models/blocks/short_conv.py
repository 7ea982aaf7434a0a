"""The short convolution block of LFM2."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.kernels.short_conv import short_conv
from tfjax.models.blocks.linear import Linear
from tfjax.models.rows import ConvCache, Rows


class ShortConv(nnx.Module):
    """out(C * conv(B * x)) with B, C and x of one product, in this order. Shapes: taps [D, C], the last for the row."""

    def __init__(self, hidden: int, taps: int, *, bias: bool, dtype: jnp.dtype):
        self.bcx = Linear(hidden, 3 * hidden, bias=bias, dtype=dtype)
        self.taps = nnx.Param(jnp.zeros((hidden, taps), dtype))
        self.bias = nnx.Param(jnp.zeros(hidden, dtype)) if bias else None
        self.out = Linear(hidden, hidden, bias=bias, dtype=dtype)

    def __call__(self, x: jax.Array, cache: ConvCache, rows: Rows) -> tuple[jax.Array, ConvCache]:
        """Shapes: x [R, D] -> [R, D] and the cache with the rows' inputs."""
        before, after, x = jnp.split(self.bcx(x), 3, -1)
        bias = None if self.bias is None else self.bias[...]
        place = rows.lane, rows.position
        mixed, state = short_conv((before, after), x, self.taps[...], bias, cache, place, rows.page_table)
        return self.out(mixed), ConvCache(*state)
