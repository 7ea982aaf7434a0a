"""Grouped-query self-attention over the paged cache."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.kernels.paged_attention import paged_attention, write_rows
from tfjax.kernels.rope import rotate
from tfjax.models.blocks.linear import Linear
from tfjax.models.rows import LayerCache, Rows


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """Shapes of one attention block. `qkv_bias` and `out_bias` say which projections carry a bias."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool
    out_bias: bool


class Attention(nnx.Module):
    """Project to q, k, v in one product; rotate; write k and v to the cache; attend; project back."""

    def __init__(self, config: AttentionConfig, dtype: jnp.dtype):
        self.config = config
        width = config.heads * config.head_dim
        kv_width = config.kv_heads * config.head_dim
        self.qkv = Linear(config.hidden, width + 2 * kv_width, bias=config.qkv_bias, dtype=dtype)
        self.out = Linear(width, config.hidden, bias=config.out_bias, dtype=dtype)

    def __call__(
        self, x: jax.Array, cache: LayerCache, rows: Rows, inverse_frequency: jax.Array, *, tile_rows: int
    ) -> tuple[jax.Array, LayerCache]:
        """Shapes: x [R, D], inverse_frequency [H/2] -> [R, D] and the cache with the rows' keys and values."""
        c = self.config
        heads = self.qkv(x).reshape(x.shape[0], c.heads + 2 * c.kv_heads, c.head_dim)
        q, k, v = jnp.split(heads, [c.heads, c.heads + c.kv_heads], 1)
        q = rotate(q, rows.position, inverse_frequency)
        k = rotate(k, rows.position, inverse_frequency)
        cache = LayerCache(*write_rows(cache.keys, cache.values, k, v, rows.page, rows.slot))
        attended = paged_attention(
            q, cache.keys, cache.values, rows.position, rows.tiles, rows.page_table, tile_rows=tile_rows
        )
        return self.out(attended.reshape(x.shape[0], -1)), cache
