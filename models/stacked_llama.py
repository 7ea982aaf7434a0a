"""A Llama whose equal layers lie in one array each, by the operators of one route.

This is the form that the device kernels want: they take a whole stack and a layer's number, so that no slice is copied
and one program serves all layers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.kernels.embed_rows import embed_rows
from tfjax.kernels.gpu.plans import split_of
from tfjax.kernels.layer_matmul import layer_glu, layer_matmul
from tfjax.kernels.packed import Weight, at
from tfjax.kernels.rope_write import Heads, Places, Pools, rope_write, turns
from tfjax.kernels.routes import Route
from tfjax.kernels.sum_norm import sum_norm
from tfjax.kernels.window_attention import rows_of_block, spare_rows, window, window_attention
from tfjax.models import llama
from tfjax.models.family import Source, Stacked
from tfjax.models.layer_loop import over_layers
from tfjax.models.llama import Llama, LlamaConfig
from tfjax.models.module_state import ModuleState
from tfjax.models.rows import Forward, Rows, tapped
from tfjax.models.stacked_pools import by_layer, empty_pools, flat_pools


class StackedWeights(NamedTuple):
    """All parameters. Shapes: embedding, head[0] [V, D]; norms [L + 1, D] (the last is the final norm's) and [L, D];
    products [L, out, in] as in checkpoints, their biases [L, out] or None. All but norms and biases may be packed."""

    embedding: Weight
    attention_norm: jax.Array
    qkv: Weight
    out: Weight
    mlp_norm: jax.Array
    gate_up: Weight
    down: Weight
    head: Weight
    qkv_bias: jax.Array | None = None
    out_bias: jax.Array | None = None
    gate_up_bias: jax.Array | None = None
    down_bias: jax.Array | None = None


def stacked(model: Llama) -> StackedWeights:
    """The parameters of a model, copied into stacks."""
    own = {".".join(map(str, path)): leaf[...] for path, leaf in nnx.to_flat_state(nnx.state(model))}
    stacks = {
        stack: jnp.stack([own[f"layers.{layer}.{name}"] for layer in range(model.config.layers)])
        for stack, name in STACKS.items()
        if f"layers.0.{name}" in own
    }
    stacks["attention_norm"] = jnp.concatenate([stacks["attention_norm"], own["norm.weight"][None]])
    return StackedWeights(embedding=model.embedding[...], head=model.head_weight[None], **stacks)


class StackedLlama(nnx.Module):
    """`tfjax.models.llama.Llama` in this form, by the operators of one route."""

    def __init__(self, config: LlamaConfig, dtype: jnp.dtype, route: Route):
        self.config, self.route = config, route
        width, count, size = config.heads * config.head_dim, config.layers, config.hidden
        qkv_width = width + 2 * config.kv_heads * config.head_dim

        def zeros(*shape: int) -> nnx.Param[jax.Array]:
            return nnx.Param(jnp.zeros(shape, dtype))

        def bias(width: int, carried: bool) -> nnx.Param[jax.Array] | None:
            return zeros(count, width) if carried else None

        self.embedding = zeros(config.vocab, size)
        self.attention_norm = zeros(count + 1, size)
        self.qkv = zeros(count, qkv_width, size)
        self.out = zeros(count, size, width)
        self.mlp_norm = zeros(count, size)
        self.gate_up = zeros(count, 2 * config.inner, size)
        self.down = zeros(count, size, config.inner)
        self.head = None if config.tied else zeros(config.vocab, size)
        self.qkv_bias = bias(qkv_width, config.attention_bias)
        self.out_bias = bias(size, config.attention_bias)
        self.gate_up_bias = bias(2 * config.inner, config.mlp_bias)
        self.down_bias = bias(size, config.mlp_bias)

    @property
    def head_weight(self) -> Weight:
        """Shape: [V, D]."""
        head: Weight = self.embedding[...] if self.head is None else self.head[...]
        return head

    @property
    def weights(self) -> StackedWeights:
        """The parameters by name; nothing is copied."""
        stacks = {name: getattr(self, name) for name in StackedWeights._fields if name != "head"}
        found: dict[str, Any] = {name: value if value is None else value[...] for name, value in stacks.items()}
        return StackedWeights(**found, head=at(self.head_weight, None))

    def __call__(self, cache: Pools, rows: Rows, *, tile_rows: int, taps: tuple[int, ...] = ()) -> Forward:
        """One forward of the rows. `taps` are layers whose features are wanted. Shapes of the cache: `empty_cache`."""
        done = forward(
            self.config,
            self.weights,
            flat_pools(cache),
            rows,
            rows.used,
            tile_rows=tile_rows,
            route=self.route,
            taps=taps,
        )
        return done._replace(cache=by_layer(done.cache, cache))

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Shapes: [R, D] -> float32 [R, V]."""
        return logits(self.weights, hidden, jnp.int32(len(hidden)), route=self.route)


STACKS = {
    "attention_norm": "attention_norm.weight",
    "qkv": "attention.qkv.weight",
    "out": "attention.out.weight",
    "mlp_norm": "mlp_norm.weight",
    "gate_up": "mlp.gate_up.weight",
    "down": "mlp.down.weight",
    "qkv_bias": "attention.qkv.bias",
    "out_bias": "attention.out.bias",
    "gate_up_bias": "mlp.gate_up.bias",
    "down_bias": "mlp.down.bias",
}
"""Each stack and the parameter of a layer that it holds; the final norm's follows in the first."""


def sources(config: LlamaConfig) -> dict[str, tuple[Source, ...]]:
    """As `tfjax.models.llama.sources`; a stack's tensors are those of its layers, one layer after another."""
    own = llama.sources(config)
    stacks = {
        stack: tuple(source for layer in range(config.layers) for source in own[f"layers.{layer}.{name}"])
        for stack, name in STACKS.items()
        if f"layers.0.{name}" in own
    }
    stacks["attention_norm"] += own["norm.weight"]
    return {name: own[name] for name in ("embedding", "head") if name in own} | stacks


def unstacked(model: StackedLlama) -> Llama:
    """The same parameters in modules. Frees each stack when its layers are copied out of it."""
    state = ModuleState(nnx.eval_shape(lambda: Llama(model.config, model.embedding[...].dtype)))
    state.put("embedding", model.embedding[...])
    if model.head is not None:
        state.put("head", model.head[...])
    state.put("norm.weight", model.attention_norm[...][model.config.layers])
    for stack, name in STACKS.items():
        if (parameter := getattr(model, stack)) is None:
            continue
        whole = parameter[...]
        for layer in range(model.config.layers):
            state.put(f"layers.{layer}.{name}", at(whole, layer))
        for array in jax.tree.leaves(whole):
            array.delete()
    return state.filled()


def empty_cache(config: LlamaConfig, pages: int, page_rows: int, lanes: int, dtype: jnp.dtype) -> Pools:
    """A zeroed cache of `pages` pages a layer, page 0 being scratch. Shapes: [L, P, K, PAGE_ROWS, H]."""
    return empty_pools(config.layers, pages, config.kv_heads, page_rows, config.head_dim, dtype)


def tile_rows(config: LlamaConfig) -> int:
    """Rows of a block of attention. Taller tiles would be cut into such blocks, lower ones leave them partly empty."""
    return rows_of_block(config.heads // config.kv_heads)


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
    products = _Products(weights, count, route)
    turned = turns(rows.position, jnp.asarray(config.rope.inverse_frequency(config.head_dim)))
    shared = window(rows.position, rows.tiles, rows.page_table, tile_rows=tile_rows, group=heads.group)
    page, slot = rows.page, rows.slot
    x = embed_rows(weights.embedding, rows.token, count, route=route)
    nothing = jnp.zeros((0, *x.shape), jnp.float32)
    first = jnp.int32(0)
    x, h = sum_norm(nothing, x, weights.attention_norm, first, count, eps=config.norm_eps, route=route)

    def layer(
        carry: tuple[jax.Array, jax.Array, Pools], number: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array, Pools], jax.Array]:
        x, h, pools = carry
        qkv = products.parts(h, "qkv", number)
        places = Places(page, slot, number * pages)
        spare = spare_rows(heads.group)
        q, pools = rope_write(qkv, turned, places, pools, number, count, heads=heads, spare=spare, route=route)
        attended = window_attention(q, pools, shared, places.first_page, route=route)
        out = products.parts(attended, "out", number)
        x, h = sum_norm(out, x, weights.mlp_norm, number, count, eps=config.norm_eps, route=route)
        gated = products.gated(h, number)
        down = products.parts(gated, "down", number)
        x, h = sum_norm(down, x, weights.attention_norm, number + 1, count, eps=config.norm_eps, route=route)
        return (x, h, pools), x

    (_, hidden, pools), after = over_layers(layer, (x, h, pools), config.layers, route)
    return Forward(hidden, pools, tapped(after, taps))


class _Products(NamedTuple):
    """The products of one forward.

    Attributes:
        used: int32 [], how many of the rows matter.
    """

    weights: StackedWeights
    used: jax.Array
    route: Route

    def parts(self, x: jax.Array, name: str, layer: jax.Array) -> jax.Array:
        """Float32 parts that are still to be added, the bias in the first. Shapes: [R, in] -> [parts, R, out]."""
        weight: Weight = getattr(self.weights, name)
        bias: jax.Array | None = getattr(self.weights, f"{name}_bias")
        split = split_of(weight.shape[2], weight.shape[1])
        return layer_matmul(x, weight, layer, self.used, split=split, bias=bias, route=self.route)

    def gated(self, x: jax.Array, layer: jax.Array) -> jax.Array:
        """Shapes: [R, D] -> [R, I]."""
        weight, bias = self.weights.gate_up, self.weights.gate_up_bias
        return layer_glu(x, weight, layer, self.used, bias=bias, route=self.route)


def logits(weights: StackedWeights, hidden: jax.Array, count: jax.Array, *, route: Route) -> jax.Array:
    """Shapes: hidden [R, D], count int32 [] -> float32 [R, V]."""
    return layer_matmul(hidden, weights.head, jnp.int32(0), count, split=1, route=route)[0]


STACKED: Stacked[LlamaConfig] = Stacked(
    build=StackedLlama,
    sources=sources,
    empty_cache=empty_cache,
    tile_rows=tile_rows,
    unstacked=unstacked,
    takes_packed=True,
)
