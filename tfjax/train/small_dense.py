"""Llama layers over whole sequences, for training: dense causal attention, packed sequences kept apart.

Serving computes the same function row by row over a paged cache; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfjax.kernels.rope import rotate
from tfjax.models.blocks.rope import RopeConfig

type Weights = Mapping[str, jax.Array]

LAYER_TENSORS: Mapping[str, str] = {
    "attention_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
"""Name in `Weights` -> name in a checkpoint, between `model.layers.N.` and `.weight`."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the layers need to know beside their weights."""

    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope: RopeConfig


class Places(NamedTuple):
    """Where each token of a batch stands.

    Shapes: position int32 [B, T], visible bool [B, 1, T, T] (query, key).
    """

    position: jax.Array
    visible: jax.Array


def places(segment: jax.Array, position: jax.Array) -> Places:
    """A token sees the tokens of its own segment up to itself. Shapes: int32 [B, T] each."""
    index = jnp.arange(segment.shape[1])
    same = segment[:, :, None] == segment[:, None, :]
    return Places(position, (same & (index[:, None] >= index))[:, None])


def run_layers(x: jax.Array, layers: Weights, shape: Shape, at: Places) -> jax.Array:
    """All layers in turn. Shapes: x [B, T, D], each of `layers` [layers, ...] -> [B, T, D], not normed."""
    frequency = jnp.asarray(shape.rope.inverse_frequency(shape.head_dim))
    return jax.lax.scan(lambda x, weights: (_layer(x, weights, shape, at, frequency), None), x, layers)[0]


def tapped_layers(
    x: jax.Array, layers: Weights, shape: Shape, at: Places, taps: tuple[int, ...]
) -> tuple[jax.Array, jax.Array]:
    """As `run_layers`, and the residual stream after each tapped layer, side by side in the order of `taps`.

    Shapes: x [B, T, D] -> [B, T, D], [B, T, taps * D].
    """
    frequency = jnp.asarray(shape.rope.inverse_frequency(shape.head_dim))

    def layer(x: jax.Array, weights: Weights) -> tuple[jax.Array, jax.Array]:
        x = _layer(x, weights, shape, at, frequency)
        return x, x

    x, after = jax.lax.scan(layer, x, layers)
    return x, jnp.concatenate([after[tap] for tap in taps], -1)


def _layer(x: jax.Array, weights: Weights, shape: Shape, at: Places, frequency: jax.Array) -> jax.Array:
    x = x + _attention(rms_norm(x, weights["attention_norm"], shape.norm_eps), weights, shape, at, frequency)
    h = rms_norm(x, weights["mlp_norm"], shape.norm_eps)
    gate, up = (product(h, weights[name]).astype(jnp.float32) for name in ("gate", "up"))
    return x + product((jax.nn.silu(gate) * up).astype(x.dtype), weights["down"])


def product(x: jax.Array, weight: jax.Array) -> jax.Array:
    """x times a weight that is stored [out, in], in the dtype of x."""
    return jnp.einsum("...d,od->...o", x, weight)


def rms_norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    """Normalise in float32, round, then scale, in the order of the served models."""
    wide = x.astype(jnp.float32)
    mean_square = jnp.mean(wide * wide, -1, keepdims=True)
    return (wide * jax.lax.rsqrt(mean_square + eps)).astype(x.dtype) * weight


def _attention(x: jax.Array, weights: Weights, shape: Shape, at: Places, frequency: jax.Array) -> jax.Array:
    batch, length, _ = x.shape

    def heads(name: str, count: int) -> jax.Array:
        return product(x, weights[name]).reshape(batch * length, count, shape.head_dim)

    position = at.position.reshape(-1)
    q = rotate(heads("q", shape.heads), position, frequency)
    k = rotate(heads("k", shape.kv_heads), position, frequency)
    v = heads("v", shape.kv_heads)
    q, k, v = (part.reshape(batch, length, -1, shape.head_dim) for part in (q, k, v))
    attended = jax.nn.dot_product_attention(q, k, v, mask=at.visible)
    return product(attended.reshape(batch, length, -1), weights["o"])
