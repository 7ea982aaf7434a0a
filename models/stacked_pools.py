"""The pages of a stacked model: those of all layers in one array, which kernels see one layer after another."""

from __future__ import annotations

import jax.numpy as jnp

from tfjax.kernels.rope_write import Pools


def empty_pools(layers: int, pages: int, kv_heads: int, page_rows: int, head_dim: int, dtype: jnp.dtype) -> Pools:
    """Zeroed pages, each layer's page 0 being scratch. Shapes: [L, P, K, PAGE_ROWS, H]."""
    shape = (layers, pages, kv_heads, page_rows, head_dim)
    return Pools(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))


def flat_pools(pools: Pools) -> Pools:
    """As kernels take them; nothing is copied in a traced program. Shapes: [L, P, ...] -> [L * P, ...]."""
    return Pools(*(pool.reshape(-1, *pool.shape[2:]) for pool in pools))


def by_layer(pools: Pools, like: Pools) -> Pools:
    """What `flat_pools` made of pages shaped as `like`, in their shape again."""
    return Pools(*(pool.reshape(before.shape) for pool, before in zip(pools, like, strict=True)))
