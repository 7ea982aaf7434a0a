"""A DSpark drafter whose equal layers lie in one array each, by the operators of one route.

The ends of it (the Markov head, the confidence head, the target's head) stay as they are in modules.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.kernels.embed_rows import embed_rows
from tfjax.kernels.gpu.plans import split_of
from tfjax.kernels.layer_matmul import layer_glu, layer_matmul
from tfjax.kernels.rope_write import HeadNorm, Heads, Places, Pools, rope_write, turns
from tfjax.kernels.routes import Route
from tfjax.kernels.sum_norm import sum_norm
from tfjax.kernels.window_attention import rows_of_block, spare_rows, window, window_attention
from tfjax.models import dspark, dspark_tensors
from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.models.dspark_config import DSparkConfig
from tfjax.models.dspark_ends import DSparkEnds
from tfjax.models.family import Source, Stacked
from tfjax.models.layer_loop import over_layers
from tfjax.models.module_state import ModuleState
from tfjax.models.rows import Rows
from tfjax.models.stacked_pools import by_layer, empty_pools, flat_pools

FIRST = 0
"""The only layer of a product that no layer of the drafter has."""


class StackedDSpark(DSparkEnds):
    """`tfjax.models.dspark.DSpark` in this form. Shapes of the cache: `empty_cache`."""

    def __init__(self, config: DSparkConfig, dtype: jnp.dtype, route: Route):
        super().__init__(config, dtype)
        self.route = route
        c, count = config, config.layers
        normed = (count, c.head_dim) if c.qk_norm is not QKNorm.NONE else None

        def zeros(*shape: int) -> nnx.Param[jax.Array]:
            return nnx.Param(jnp.zeros(shape, dtype))

        self.attention_norm = zeros(count + 1, c.hidden)  # the last is the final norm's
        self.qkv = zeros(count, (c.heads + 2 * c.kv_heads) * c.head_dim, c.hidden)
        self.q_norm = zeros(*normed) if normed else None
        self.k_norm = zeros(*normed) if normed else None
        self.out = zeros(count, c.hidden, c.heads * c.head_dim)
        self.mlp_norm = zeros(count, c.hidden)
        self.gate_up = zeros(count, 2 * c.inner, c.hidden)
        self.down = zeros(count, c.hidden, c.inner)

    def absorb(self, cache: Pools, features: jax.Array, rows: Rows) -> Pools:
        """As `DSpark.absorb`; rows of the scratch lane are not stored."""
        c, route = self.config, self.route
        count = jnp.int32(len(features))
        weight, norm = self.fc.weight[...][None], self.context_norm.weight[...][None]
        parts = _product(features, weight, jnp.int32(FIRST), count, route)
        nothing = jnp.zeros((len(features), c.hidden), features.dtype)
        _, context = sum_norm(parts, nothing, norm, jnp.int32(FIRST), count, eps=c.norm_eps, route=route)
        heads = self._heads(queries=False)
        turned = turns(rows.position, self.inverse_frequency())
        page, slot, pages = self._stored(rows), rows.slot, cache.keys.shape[1]
        keys_values, each, last = _keys_values(self.qkv[...], c)

        def layer(pools: Pools, number: jax.Array) -> tuple[Pools, None]:
            parts = _product(context, keys_values, number * each + last, count, route)
            places = Places(page, slot, number * pages)
            _, pools = rope_write(
                parts, turned, places, pools, number, count, heads=heads, norm=self._head_norm(), route=route
            )
            return pools, None

        pools, _ = over_layers(layer, flat_pools(cache), c.layers, route)
        return by_layer(pools, cache)

    def block(
        self,
        cache: Pools,
        rows: Rows,
        *,
        mask_position: jax.Array,
        tile_rows: int,
        read_table: jax.Array | None = None,
    ) -> tuple[jax.Array, Pools]:
        """As `DSpark.block`; rows of the scratch lane are not stored."""
        c, route = self.config, self.route
        heads, pages = self._heads(), cache.keys.shape[1]
        count = jnp.int32(len(rows.token))
        tiles = rows.tiles._replace(last=mask_position[rows.tiles.start])
        table = rows.page_table if read_table is None else read_table
        shared = window(mask_position, tiles, table, tile_rows=tile_rows, group=heads.group)
        turned = turns(rows.position, self.inverse_frequency())
        page, slot, spare = self._stored(rows), rows.slot, spare_rows(heads.group)
        x = embed_rows(self.embedding[...], rows.token, count, route=route)
        nothing = jnp.zeros((0, *x.shape), jnp.float32)

        def after(parts: jax.Array, x: jax.Array, norms: Any, number: jax.Array) -> tuple[jax.Array, jax.Array]:
            return sum_norm(parts, x, norms[...], number, count, eps=c.norm_eps, route=route)

        def layer(
            carry: tuple[jax.Array, jax.Array, Pools], number: jax.Array
        ) -> tuple[tuple[jax.Array, jax.Array, Pools], None]:
            x, h, pools = carry
            qkv = _product(h, self.qkv[...], number, count, route)
            places = Places(page, slot, number * pages)
            norm = self._head_norm()
            q, pools = rope_write(
                qkv, turned, places, pools, number, count, heads=heads, norm=norm, spare=spare, route=route
            )
            attended = window_attention(q, pools, shared, places.first_page, route=route)
            x, h = after(_product(attended, self.out[...], number, count, route), x, self.mlp_norm, number)
            gated = layer_glu(h, self.gate_up[...], number, count, route=route)
            x, h = after(_product(gated, self.down[...], number, count, route), x, self.attention_norm, number + 1)
            return (x, h, pools), None

        x, h = after(nothing, x, self.attention_norm, jnp.int32(0))
        start = (x, h, flat_pools(cache))
        (_, hidden, pools), _ = over_layers(layer, start, c.layers, route)
        return hidden, by_layer(pools, cache)

    def _heads(self, *, queries: bool = True) -> Heads:
        c = self.config
        after = c.qk_norm is QKNorm.AFTER_ROPE
        return Heads(c.heads if queries else 0, c.kv_heads, c.head_dim, after, c.norm_eps, c.interleaved)

    def _head_norm(self) -> HeadNorm | None:
        if self.q_norm is None or self.k_norm is None:
            return None
        return HeadNorm(self.q_norm[...], self.k_norm[...])

    @staticmethod
    def _stored(rows: Rows) -> jax.Array:
        """The page of each row, negative for the scratch lane's."""
        return jnp.where(rows.lane == len(rows.page_table) - 1, -1, rows.page)


def _product(x: jax.Array, weight: jax.Array, number: jax.Array, count: jax.Array, route: Route) -> jax.Array:
    """A layer's product in its parts."""
    return layer_matmul(x, weight, number, count, split=split_of(weight.shape[2], weight.shape[1]), route=route)


def _keys_values(qkv: jax.Array, config: DSparkConfig) -> tuple[jax.Array, int, int]:
    """The keys' and values' rows of the stack, how many of its entries a layer has, and which of them it is.

    Where the queries' rows are a multiple of them, the stack itself is seen in pieces of their size and not copied.
    """
    rows = 2 * config.kv_heads * config.head_dim
    before = config.heads * config.head_dim
    if before % rows:
        return qkv[:, before:], 1, 0
    each = before // rows + 1
    return qkv.reshape(-1, rows, qkv.shape[2]), each, each - 1


STACKS = {
    "attention_norm": ("attention_norm.weight",),
    "qkv": ("attention.q.weight", "attention.kv.weight"),
    "q_norm": ("attention.q_norm.weight",),
    "k_norm": ("attention.k_norm.weight",),
    "out": ("attention.out.weight",),
    "mlp_norm": ("mlp_norm.weight",),
    "gate_up": ("mlp.gate_up.weight",),
    "down": ("mlp.down.weight",),
}
"""Each stack and the parameters of a layer that it holds; the final norm's follows in the first."""


def sources(config: DSparkConfig) -> dict[str, tuple[Source, ...]]:
    """As `tfjax.models.dspark_tensors.sources`; a stack's tensors are those of its layers, one layer after another."""
    own = dspark_tensors.sources(config)
    stacks = {
        stack: tuple(source for i in range(config.layers) for name in names for source in own[f"layers.{i}.{name}"])
        for stack, names in STACKS.items()
        if f"layers.0.{names[0]}" in own
    }
    stacks["attention_norm"] += own["norm.weight"]
    ends = {name: parts for name, parts in own.items() if not name.startswith("layers.") and name != "norm.weight"}
    return ends | stacks


def unstacked(model: StackedDSpark) -> dspark.DSpark:
    """The same parameters in modules. Frees each stack when its layers are copied out of it."""
    state = ModuleState(nnx.eval_shape(lambda: dspark.DSpark(model.config, model.fc.weight[...].dtype)))
    state.share(model)
    state.put("norm.weight", model.attention_norm[...][model.config.layers])
    for stack, names in STACKS.items():
        if (parameter := getattr(model, stack)) is None:
            continue
        whole, done = parameter[...], 0
        for name in names:
            size = state.shape(f"layers.0.{name}")[0]
            for layer in range(model.config.layers):
                part = whole[layer] if len(names) == 1 else whole[layer, done : done + size]
                state.put(f"layers.{layer}.{name}", part)
            done += size
        whole.delete()
    return state.filled()


def empty_cache(config: DSparkConfig, pages: int, page_rows: int, lanes: int, dtype: jnp.dtype) -> Pools:
    """A zeroed cache of `pages` pages a layer, page 0 being scratch. Shapes: [L, P, K, PAGE_ROWS, H]."""
    return empty_pools(config.layers, pages, config.kv_heads, page_rows, config.head_dim, dtype)


def tile_rows(config: DSparkConfig) -> int:
    """Rows of a block of attention."""
    return rows_of_block(config.heads // config.kv_heads)


STACKED: Stacked[DSparkConfig] = Stacked(
    build=StackedDSpark, sources=sources, empty_cache=empty_cache, tile_rows=tile_rows, unstacked=unstacked
)
