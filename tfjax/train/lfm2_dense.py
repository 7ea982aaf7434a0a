"""LFM2 and LFM2-MoE over whole sequences, for training: dense causal attention, packed sequences kept apart.

Serving computes the same function row by row over a paged cache; a test compares the two. Every expert is computed for
every token and those that were not picked are weighted with 0: with few small experts two large products take less
time than sorting tokens by expert, and nothing depends on how the router spreads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfjax.kernels.rope import rotate
from tfjax.models.blocks.rope import RopeConfig
from tfjax.train.small_dense import Places, product, rms_norm

type Layer = Mapping[str, jax.Array]
"""A layer's weights under the names of `lfm2_names`. One with `q` attends, others convolve; one with `gate` routes."""

WEIGHT_SUM_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Routing:
    """How experts are picked and weighted.

    Attributes:
        picked: experts of a token.
        normalised: weights of the picked ones are divided by their sum.
        scale: factor on the weights.
    """

    picked: int
    normalised: bool = True
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Lfm2Shape:
    """What the layers need to know beside their weights. `routing` is None for a model without experts."""

    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope: RopeConfig
    routing: Routing | None


class Lfm2Weights(NamedTuple):
    """All weights. Shapes: embedding [V, D], norm [D] (the final one)."""

    embedding: jax.Array
    layers: Sequence[Layer]
    norm: jax.Array


class Run(NamedTuple):
    """What the layers give.

    Attributes:
        hidden: residual stream before the final norm. Shape: [B, T, D].
        after: residual stream after each layer, of the same shape.
        loads: for each layer with experts, how many tokens picked each. Shape: float32 [E].
    """

    hidden: jax.Array
    after: list[jax.Array]
    loads: list[jax.Array]


def forward(
    weights: Lfm2Weights, config: Lfm2Shape, token: jax.Array, at: Places, taps: tuple[int, ...]
) -> tuple[jax.Array, jax.Array]:
    """The residual stream before the final norm, and after each tapped layer side by side in the order of `taps`.

    Shapes: token int32 [B, T] -> [B, T, D], [B, T, taps * D].
    """
    run = run_layers(weights.embedding[token], weights.layers, config, at)
    features = [run.after[tap] for tap in taps]
    return run.hidden, jnp.concatenate(features, -1) if features else run.hidden[..., :0]


def run_layers(x: jax.Array, layers: Sequence[Layer], shape: Lfm2Shape, at: Places) -> Run:
    """All layers in turn. Shape: x [B, T, D], the tokens' embeddings."""
    frequency = jnp.asarray(shape.rope.inverse_frequency(shape.head_dim))
    after: list[jax.Array] = []
    loads: list[jax.Array] = []
    for layer in layers:
        h = rms_norm(x, layer["operator_norm"], shape.norm_eps)
        x = x + (_attention(h, layer, shape, at, frequency) if "q" in layer else _short_conv(h, layer, at.position))
        h = rms_norm(x, layer["ffn_norm"], shape.norm_eps)
        y, load = feed_forward(h, layer, shape)
        x = x + y
        after.append(x)
        loads += [] if load is None else [load]
    return Run(x, after, loads)


def feed_forward(x: jax.Array, layer: Layer, shape: Lfm2Shape) -> tuple[jax.Array, jax.Array | None]:
    """Of a layer, and its experts' load where it has experts. Shapes: x [B, T, D] -> [B, T, D], float32 [E]."""
    if "gate" not in layer:
        return product(_gated(x, layer["w1"], layer["w3"]), layer["w2"]), None
    assert shape.routing is not None
    return experts(x, layer, shape.routing)


def experts(x: jax.Array, layer: Layer, routing: Routing) -> tuple[jax.Array, jax.Array]:
    """The picked experts' sum, and how often each was picked. Shapes: x [B, T, D] -> [B, T, D], float32 [E]."""
    count, inner, width = layer["w1"].shape
    picked, weight = route(x, layer, routing)
    h = _gated(x, layer["w1"].reshape(-1, width), layer["w3"].reshape(-1, width))
    h = h.reshape(*x.shape[:-1], count, inner) * weight[..., None].astype(x.dtype)
    down = layer["w2"].swapaxes(0, 1).reshape(width, -1)
    return product(h.reshape(*x.shape[:-1], -1), down), jnp.sum(picked, (0, 1), dtype=jnp.float32)


def route(x: jax.Array, layer: Layer, routing: Routing) -> tuple[jax.Array, jax.Array]:
    """Which experts a token goes to and their weights, 0 for the others. Shapes: bool and float32 [B, T, E].

    The bias takes part in picking and not in weighting; of equal ones the first is picked.
    """
    score = jax.nn.sigmoid(jnp.einsum("...d,ed->...e", x, layer["gate"], preferred_element_type=jnp.float32))
    wanted = jax.lax.stop_gradient(score + layer["expert_bias"] if "expert_bias" in layer else score)
    number = jnp.arange(wanted.shape[-1])
    mine, other = wanted[..., :, None], wanted[..., None, :]
    ahead = (other > mine) | ((other == mine) & (number < number[:, None]))
    picked = jnp.sum(ahead, -1) < routing.picked
    weight = score * picked
    if routing.normalised:
        weight = weight / (jnp.sum(weight, -1, keepdims=True) + WEIGHT_SUM_EPS)
    return picked, weight * routing.scale


def _gated(x: jax.Array, gate: jax.Array, up: jax.Array) -> jax.Array:
    wide = jax.nn.silu(product(x, gate).astype(jnp.float32)) * product(x, up).astype(jnp.float32)
    return wide.astype(x.dtype)


def _short_conv(x: jax.Array, layer: Layer, position: jax.Array) -> jax.Array:
    """The gated convolution over a token and those just before it in its sequence. Shapes: [B, T, D], int32 [B, T]."""
    before, after, value = jnp.split(product(x, layer["conv_in"]), 3, -1)
    u = before * value
    taps = layer["conv"].shape[-1]
    y = jnp.zeros(u.shape, jnp.float32)
    for tap in range(taps):
        back = taps - 1 - tap
        moved = jnp.pad(u, ((0, 0), (back, 0), (0, 0)))[:, : u.shape[1]]
        seen = jnp.where((position >= back)[..., None], moved, 0)
        y = y + seen.astype(jnp.float32) * layer["conv"][:, tap].astype(jnp.float32)
    return product(after * y.astype(x.dtype), layer["conv_out"])


def _attention(x: jax.Array, layer: Layer, shape: Lfm2Shape, at: Places, frequency: jax.Array) -> jax.Array:
    batch, length, _ = x.shape
    position = at.position.reshape(-1)

    def heads(name: str, count: int) -> jax.Array:
        return product(x, layer[name]).reshape(batch * length, count, shape.head_dim)

    q = rotate(rms_norm(heads("q", shape.heads), layer["q_norm"], shape.norm_eps), position, frequency)
    k = rotate(rms_norm(heads("k", shape.kv_heads), layer["k_norm"], shape.norm_eps), position, frequency)
    v = heads("v", shape.kv_heads)
    q, k, v = (part.reshape(batch, length, -1, shape.head_dim) for part in (q, k, v))
    attended = jax.nn.dot_product_attention(q, k, v, mask=at.visible)
    return product(attended.reshape(batch, length, -1), layer["out"])
