"""DSpark: a drafter that reads the target's hidden rows and makes a block of drafts in one forward.

Source: arXiv 2607.05147 and the DeepSpec code; LiquidAI's published drafters have the same tensors.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.kernels.paged_attention import Tiles, paged_attention, write_rows
from tfjax.kernels.routes import Route
from tfjax.models.blocks.linear import Linear
from tfjax.models.blocks.mlp import GatedMLP
from tfjax.models.blocks.norm import RMSNorm
from tfjax.models.blocks.qk_norm import QKNorm, prepare_heads
from tfjax.models.dspark_config import DSparkConfig
from tfjax.models.dspark_ends import DSparkEnds
from tfjax.models.dspark_tensors import sources
from tfjax.models.family import Family
from tfjax.models.rows import LayerCache, Rows


class Seen(NamedTuple):
    """What the rows of blocks attend to: all of the context and the whole of their own block.

    Attributes:
        position: int32 [R], the last place of each row's block in `page_table`.
        tiles: the rows grouped by lane, each tile reaching to the end of its block.
        page_table: int32 [lanes, pages].
    """

    position: jax.Array
    tiles: Tiles
    page_table: jax.Array


class DSparkAttention(nnx.Module):
    """Queries of the block's rows; keys and values of them and, projected by the same matrix, of context rows."""

    def __init__(self, config: DSparkConfig, dtype: jnp.dtype):
        self.config = config
        width, kv_width = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.q = Linear(config.hidden, width, bias=False, dtype=dtype)
        self.kv = Linear(config.hidden, 2 * kv_width, bias=False, dtype=dtype)
        self.out = Linear(width, config.hidden, bias=False, dtype=dtype)
        normed = config.qk_norm is not QKNorm.NONE
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps, dtype) if normed else None
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps, dtype) if normed else None

    def absorb(self, x: jax.Array, cache: LayerCache, rows: Rows, inverse_frequency: jax.Array) -> LayerCache:
        """Write keys and values of rows. Shapes: x [R, D], inverse_frequency [H/2]."""
        c = self.config
        heads = self.kv(x).reshape(x.shape[0], 2 * c.kv_heads, c.head_dim)
        k, v = jnp.split(heads, 2, 1)
        k = self._prepared(k, self.k_norm, rows, inverse_frequency)
        return LayerCache(*write_rows(cache.keys, cache.values, k, v, rows.page, rows.slot))

    def __call__(
        self, x: jax.Array, cache: LayerCache, rows: Rows, seen: Seen, inverse_frequency: jax.Array, *, tile_rows: int
    ) -> tuple[jax.Array, LayerCache]:
        """Shapes: x [R, D] -> [R, D] and the cache with the block's keys and values."""
        c = self.config
        cache = self.absorb(x, cache, rows, inverse_frequency)
        q = self.q(x).reshape(x.shape[0], c.heads, c.head_dim)
        q = self._prepared(q, self.q_norm, rows, inverse_frequency)
        attended = paged_attention(
            q, cache.keys, cache.values, seen.position, seen.tiles, seen.page_table, tile_rows=tile_rows
        )
        return self.out(attended.reshape(x.shape[0], -1)), cache

    def _prepared(self, heads: jax.Array, norm: RMSNorm | None, rows: Rows, inverse_frequency: jax.Array) -> jax.Array:
        c = self.config
        return prepare_heads(heads, norm, rows.position, inverse_frequency, order=c.qk_norm, interleaved=c.interleaved)


class DSparkLayer(nnx.Module):
    """x + attention(norm x), then x + mlp(norm x). Context rows enter attention without the norm."""

    def __init__(self, config: DSparkConfig, dtype: jnp.dtype):
        self.attention_norm = RMSNorm(config.hidden, config.norm_eps, dtype)
        self.attention = DSparkAttention(config, dtype)
        self.mlp_norm = RMSNorm(config.hidden, config.norm_eps, dtype)
        self.mlp = GatedMLP(config.hidden, config.inner, bias=False, dtype=dtype)

    def __call__(
        self, x: jax.Array, cache: LayerCache, rows: Rows, seen: Seen, inverse_frequency: jax.Array, *, tile_rows: int
    ) -> tuple[jax.Array, LayerCache]:
        normed = self.attention_norm(x)
        mixed, cache = self.attention(normed, cache, rows, seen, inverse_frequency, tile_rows=tile_rows)
        x = x + mixed
        return x + self.mlp(self.mlp_norm(x)), cache


@functools.partial(jax.jit, static_argnames="definition")
def _absorb_layer(
    definition: Any, state: Any, context: jax.Array, cache: LayerCache, rows: Rows, frequency: jax.Array
) -> LayerCache:
    # Equal layers share one trace through these inner jits; XLA inlines them again.
    layer: DSparkLayer = nnx.merge(definition, state)
    return layer.attention.absorb(context, cache, rows, frequency)


@functools.partial(jax.jit, static_argnames=("definition", "tile_rows"))
def _block_layer(
    definition: Any,
    state: Any,
    x: jax.Array,
    cache: LayerCache,
    rows: Rows,
    seen: Seen,
    frequency: jax.Array,
    tile_rows: int,
) -> tuple[jax.Array, LayerCache]:
    layer: DSparkLayer = nnx.merge(definition, state)
    return layer(x, cache, rows, seen, frequency, tile_rows=tile_rows)


class DSpark(DSparkEnds):
    """The drafter in modules. The cache goes in and comes out."""

    route = Route.REFERENCE

    def __init__(self, config: DSparkConfig, dtype: jnp.dtype):
        super().__init__(config, dtype)
        self.layers = nnx.List([DSparkLayer(config, dtype) for _ in range(config.layers)])
        self.norm = RMSNorm(config.hidden, config.norm_eps, dtype)

    def absorb(self, cache: tuple[LayerCache, ...], features: jax.Array, rows: Rows) -> tuple[LayerCache, ...]:
        """Write the context's keys and values.

        Shapes: features [R, taps * target D], the target's residual stream after each tapped layer; rows.token is
        not read -> the cache with the rows written.
        """
        context = self.context_norm(self.fc(features))
        frequency = self.inverse_frequency()
        return tuple(
            _absorb_layer(*nnx.split(layer), context, layer_cache, rows, frequency)
            for layer, layer_cache in zip(self.layers, cache, strict=True)
        )

    def block(
        self,
        cache: tuple[LayerCache, ...],
        rows: Rows,
        *,
        mask_position: jax.Array,
        tile_rows: int,
        read_table: jax.Array | None = None,
    ) -> tuple[jax.Array, tuple[LayerCache, ...]]:
        """One forward over the blocks of several streams, laid end to end: each its anchor, then mask tokens.

        The block's own keys and values are written at its positions, where `absorb` overwrites them later.

        Shapes: mask_position int32 [R], the last place of each row's block in `read_table` (for a table that begins
        with position 0, the block's last position); read_table int32 [lanes, pages], what is attended to, where it
        is not rows.page_table -> final-normed rows [R, D] and the cache.
        """
        tiles = rows.tiles._replace(last=mask_position[rows.tiles.start])
        seen = Seen(mask_position, tiles, rows.page_table if read_table is None else read_table)
        frequency = self.inverse_frequency()
        x = self.embedding[...][rows.token]
        written = []
        for layer, layer_cache in zip(self.layers, cache, strict=True):
            x, new_cache = _block_layer(*nnx.split(layer), x, layer_cache, rows, seen, frequency, tile_rows)
            written.append(new_cache)
        return self.norm(x), tuple(written)


def empty_cache(config: DSparkConfig, pages: int, page_rows: int, dtype: jnp.dtype) -> tuple[LayerCache, ...]:
    """A zeroed paged cache, page 0 being scratch."""
    shape = (pages, config.kv_heads, page_rows, config.head_dim)
    return tuple(LayerCache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)) for _ in range(config.layers))


def cache_bytes_per_position(config: DSparkConfig, dtype: jnp.dtype) -> int:
    return 2 * config.layers * config.kv_heads * config.head_dim * jnp.dtype(dtype).itemsize


def cache_bytes_per_lane(config: DSparkConfig, dtype: jnp.dtype) -> int:
    """None: everything lies in pages."""
    return 0


FAMILY: Family[DSparkConfig] = Family(
    architecture="Lfm2DSparkDraftModel",
    config_from_hf=DSparkConfig.from_hf,
    build=DSpark,
    sources=sources,
    empty_cache=lambda config, pages, page_rows, lanes, dtype: empty_cache(config, pages, page_rows, dtype),
    cache_bytes_per_position=cache_bytes_per_position,
    cache_bytes_per_lane=cache_bytes_per_lane,
    stacked_module="tfjax.models.stacked_dspark",
)
