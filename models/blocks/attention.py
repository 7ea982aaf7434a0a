"""Grouped-query self-attention over the paged cache."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.kernels.paged_attention import paged_attention, write_rows
from tfjax.models.blocks.linear import Linear
from tfjax.models.blocks.norm import RMSNorm
from tfjax.models.blocks.qk_norm import QKNorm, prepare_heads
from tfjax.models.rows import LayerCache, Rows


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """Shapes and options of one attention block.

    Attributes:
        qkv_bias, out_bias: which projections carry a bias.
        qk_norm: whether heads of q and k are normed, and on which side of the rotation.
        norm_eps: of those norms.
        interleaved: whether rotation pairs neighbours (2i, 2i + 1) instead of (i, i + H/2).
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool
    out_bias: bool
    qk_norm: QKNorm = QKNorm.NONE
    norm_eps: float = 1e-5
    interleaved: bool = False


class Attention(nnx.Module):
    """Project to q, k, v in one product; norm and rotate; write k and v to the cache; attend; project back."""

    def __init__(self, config: AttentionConfig, dtype: jnp.dtype):
        self.config = config
        width = config.heads * config.head_dim
        kv_width = config.kv_heads * config.head_dim
        normed = config.qk_norm is not QKNorm.NONE
        self.qkv = Linear(config.hidden, width + 2 * kv_width, bias=config.qkv_bias, dtype=dtype)
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps, dtype) if normed else None
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps, dtype) if normed else None
        self.out = Linear(width, config.hidden, bias=config.out_bias, dtype=dtype)

    def __call__(
        self, x: jax.Array, cache: LayerCache, rows: Rows, inverse_frequency: jax.Array, *, tile_rows: int
    ) -> tuple[jax.Array, LayerCache]:
        """Shapes: x [R, D], inverse_frequency [H/2] -> [R, D] and the cache with the rows' keys and values."""
        c = self.config
        heads = self.qkv(x).reshape(x.shape[0], c.heads + 2 * c.kv_heads, c.head_dim)
        q, k, v = jnp.split(heads, [c.heads, c.heads + c.kv_heads], 1)
        q, k = (
            prepare_heads(part, norm, rows.position, inverse_frequency, order=c.qk_norm, interleaved=c.interleaved)
            for part, norm in ((q, self.q_norm), (k, self.k_norm))
        )
        cache = LayerCache(*write_rows(cache.keys, cache.values, k, v, rows.page, rows.slot))
        attended = paged_attention(
            q, cache.keys, cache.values, rows.position, rows.tiles, rows.page_table, tile_rows=tile_rows
        )
        return self.out(attended.reshape(x.shape[0], -1)), cache
