"""A Llama whose equal layers lie in one array each and run in a scan, by the operators of one route.

This is the form that the device kernels want: they take a whole stack and a layer's number, so that no slice is copied
and one program serves all layers.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.kernels.embed_rows import embed_rows
from tfjax.kernels.gpu.plans import split_of
from tfjax.kernels.layer_matmul import layer_glu, layer_matmul
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.rope_write import Heads, Places, Pools, rope_write, turns
from tfjax.kernels.routes import Route, Unsupported
from tfjax.kernels.sum_norm import sum_norm
from tfjax.kernels.window_attention import spare_rows, window, window_attention
from tfjax.models.llama import Llama, LlamaConfig
from tfjax.models.rows import Forward, Rows, tapped


class StackedWeights(NamedTuple):
    """All parameters. Shapes: embedding, head[0] [V, D]; norms [L + 1, D] (the last is the final norm's) and [L, D];
    products [L, out, in] as in checkpoints."""

    embedding: jax.Array
    attention_norm: jax.Array
    qkv: jax.Array
    out: jax.Array
    mlp_norm: jax.Array
    gate_up: jax.Array
    down: jax.Array
    head: jax.Array


def stacked(model: Llama) -> StackedWeights:
    """The parameters of a model, copied into stacks.

    Raises:
        Unsupported: for biases, which the operators of this form do not add yet.
    """
    if model.config.attention_bias or model.config.mlp_bias:
        raise Unsupported("a Llama with biases; the stacked form has none, so use --kernels reference")
    layers = list(model.layers)

    def stack(parameters: list[nnx.Param[jax.Array]]) -> jax.Array:
        return jnp.stack([parameter[...] for parameter in parameters])

    return StackedWeights(
        embedding=model.embedding[...],
        attention_norm=stack([layer.attention_norm.weight for layer in layers] + [model.norm.weight]),
        qkv=stack([layer.attention.qkv.weight for layer in layers]),
        out=stack([layer.attention.out.weight for layer in layers]),
        mlp_norm=stack([layer.mlp_norm.weight for layer in layers]),
        gate_up=stack([layer.mlp.gate_up.weight for layer in layers]),
        down=stack([layer.mlp.down.weight for layer in layers]),
        head=model.head_weight[None],
    )


def empty_pools(config: LlamaConfig, pages: int, dtype: jnp.dtype) -> Pools:
    """Zeroed pages of all layers, one layer's after another's; each layer's page 0 is scratch."""
    shape = (config.layers * pages, config.kv_heads, PAGE_ROWS, config.head_dim)
    return Pools(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))


def forward(
    config: LlamaConfig,
    weights: StackedWeights,
    pools: Pools,
    rows: Rows,
    count: jax.Array,
    *,
    tile_rows: int,
    route: Route,
    taps: tuple[int, ...] = (),
) -> Forward:
    """One forward; `count` int32 [] is how many of the rows matter. The cache of the result is the pools.

    Raises:
        Unsupported: for sizes that the route cannot take.
    """
    pages = len(pools.keys) // config.layers
    heads = Heads(config.heads, config.kv_heads, config.head_dim)
    parts = {
        name: split_of(weight.shape[2], weight.shape[1])
        for name, weight in (("qkv", weights.qkv), ("out", weights.out), ("down", weights.down))
    }
    turned = turns(rows.position, jnp.asarray(config.rope.inverse_frequency(config.head_dim)))
    shared = window(rows.position, rows.tiles, rows.page_table, tile_rows=tile_rows, group=heads.group)
    page, slot = rows.page, rows.slot
    x = embed_rows(weights.embedding, rows.token, count, route=route)
    nothing = jnp.zeros((0, *x.shape), jnp.float32)
    first = jnp.int32(0)
    x, h = sum_norm(nothing, x, weights.attention_norm, first, count, eps=config.norm_eps, route=route)

    def layer(
        carry: tuple[jax.Array, jax.Array, Pools], number: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array, Pools], jax.Array | None]:
        x, h, pools = carry
        qkv = layer_matmul(h, weights.qkv, number, count, split=parts["qkv"], route=route)
        places = Places(page, slot, number * pages)
        spare = spare_rows(heads.group)
        q, pools = rope_write(qkv, turned, places, pools, number, count, heads=heads, spare=spare, route=route)
        attended = window_attention(q, pools, shared, places.first_page, route=route)
        out = layer_matmul(attended, weights.out, number, count, split=parts["out"], route=route)
        x, h = sum_norm(out, x, weights.mlp_norm, number, count, eps=config.norm_eps, route=route)
        gated = layer_glu(h, weights.gate_up, number, count, route=route)
        down = layer_matmul(gated, weights.down, number, count, split=parts["down"], route=route)
        x, h = sum_norm(down, x, weights.attention_norm, number + 1, count, eps=config.norm_eps, route=route)
        return (x, h, pools), x if taps else None

    (_, hidden, pools), after = jax.lax.scan(layer, (x, h, pools), jnp.arange(config.layers, dtype=jnp.int32))
    return Forward(hidden, pools, tapped(list(after), taps) if after is not None else None)


def logits(weights: StackedWeights, hidden: jax.Array, count: jax.Array, *, route: Route) -> jax.Array:
    """Shapes: hidden [R, D], count int32 [] -> float32 [R, V]."""
    return layer_matmul(hidden, weights.head, jnp.int32(0), count, split=1, route=route)[0]
