"""A DSpark drafter over whole replies, for training: many blocks in one forward, each with its own context.

Serving computes the same function block by block over a paged cache; a test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from tfjax.models.blocks.markov import MarkovKind
from tfjax.models.blocks.qk_norm import QKNorm, prepare_heads
from tfjax.models.dspark_config import DSparkConfig
from tfjax.train.dspark_blocks import Blocks
from tfjax.train.small_dense import Weights, product, rms_norm

type Params = dict[str, Any]
"""fc, hidden_norm, norm, layers (each tensor stacked over the layers), markov and confidence (each a dict)."""


def lowered(params: Params, dtype: Any) -> Params:
    """The parameters in the dtype of the products; the confidence head stays in float32, as it is served."""
    low: Params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
    return low | {"confidence": params["confidence"]}


def block_states(
    params: Params,
    embedding: jax.Array,
    features: jax.Array,
    position: jax.Array,
    blocks: Blocks,
    config: DSparkConfig,
) -> jax.Array:
    """The final-normed rows of all blocks, in the dtype of the parameters.

    Shapes: embedding [V, D]; features [B, T, taps * target D] of all tokens; position int32 [B, T] -> [B, N, K, D].
    """
    context = rms_norm(product(features, params["fc"]), params["hidden_norm"], config.norm_eps)
    x = embedding[blocks.token].astype(context.dtype)

    def layer(x: jax.Array, weights: Weights) -> tuple[jax.Array, None]:
        normed = rms_norm(x, weights["attention_norm"], config.norm_eps)
        x = x + _attention(normed, context, position, blocks, weights, config)
        h = rms_norm(x, weights["mlp_norm"], config.norm_eps)
        gate, up = (product(h, weights[name]).astype(jnp.float32) for name in ("gate", "up"))
        return x + product((jax.nn.silu(gate) * up).astype(x.dtype), weights["down"]), None

    x, _ = jax.lax.scan(layer, x, params["layers"])
    return rms_norm(x, params["norm"], config.norm_eps)


def _attention(
    x: jax.Array, context: jax.Array, position: jax.Array, blocks: Blocks, weights: Weights, config: DSparkConfig
) -> jax.Array:
    """Each block's rows see their context and their own block whole. Context enters without the layer's input norm.

    Shapes: x [B, N, K, D], context [B, T, D] -> [B, N, K, D].
    """
    kv_heads, group = config.kv_heads, config.heads // config.kv_heads
    q = _heads(x, blocks.position, "q", config.heads, weights, config)
    q = q.reshape(*q.shape[:3], kv_heads, group, config.head_dim)
    own_k = _heads(x, blocks.position, "k", kv_heads, weights, config)
    own_v = _split(product(x, weights["v"]), config)
    k = _heads(context, position, "k", kv_heads, weights, config)
    v = _split(product(context, weights["v"]), config)

    def scores(pattern: str, keys: jax.Array) -> jax.Array:
        found: jax.Array = jnp.einsum(pattern, q, keys, preferred_element_type=jnp.float32)
        return found / math.sqrt(config.head_dim)

    far = scores("bnqkgh,btkh->bnkgqt", k)
    far = jnp.where(blocks.seen[:, :, None, None, None], far, -jnp.inf)
    near = scores("bnqkgh,bnskh->bnkgqs", own_k)
    share = jax.nn.softmax(jnp.concatenate([far, near], -1), -1).astype(x.dtype)
    length = context.shape[1]
    mixed = jnp.einsum("bnkgqt,btkh->bnqkgh", share[..., :length], v) + jnp.einsum(
        "bnkgqs,bnskh->bnqkgh", share[..., length:], own_v
    )
    return product(mixed.reshape(*x.shape[:3], -1), weights["o"])


def _heads(
    x: jax.Array, position: jax.Array, name: str, count: int, weights: Weights, config: DSparkConfig
) -> jax.Array:
    """Normed and rotated heads of rows. Shapes: x [..., D], position int32 [...] -> [..., count, H]."""

    def norm(heads: jax.Array) -> jax.Array:
        return rms_norm(heads, weights[f"{name}_norm"], config.norm_eps)

    heads = product(x, weights[name]).reshape(-1, count, config.head_dim)
    prepared = prepare_heads(
        heads,
        None if config.qk_norm is QKNorm.NONE else norm,
        position.reshape(-1),
        jnp.asarray(config.rope.inverse_frequency(config.head_dim)),
        order=config.qk_norm,
        interleaved=config.interleaved,
    )
    return prepared.reshape(*x.shape[:-1], count, config.head_dim)


def _split(x: jax.Array, config: DSparkConfig) -> jax.Array:
    return x.reshape(*x.shape[:-1], config.kv_heads, config.head_dim)


def embed_previous(markov: Mapping[str, jax.Array], row_of: jax.Array, previous: jax.Array) -> jax.Array:
    """The Markov head's vector of each token before; zeros for one that it has no row of.

    Shapes: row_of int32 [V], -1 for none; previous int32 [...] -> [..., r].
    """
    row = row_of[previous]
    return jnp.where(row[..., None] >= 0, markov["w1"][row], 0)


def markov_features(markov: Mapping[str, jax.Array], kind: MarkovKind, e: jax.Array, h: jax.Array) -> jax.Array:
    """What W2 multiplies, with the true tokens before. Shapes: e [..., K, r], h [..., K, D] -> [..., K, r]."""
    wide = e.astype(jnp.float32)
    if kind is MarkovKind.GATED:
        gate = product(jnp.concatenate([h, e], -1), markov["gate"]) + markov["gate_bias"]
        return (jax.nn.sigmoid(gate.astype(jnp.float32)) * wide).astype(e.dtype)
    if kind is MarkovKind.RNN:
        return _recurrent(markov, e, h)
    return e


def _recurrent(markov: Mapping[str, jax.Array], e: jax.Array, h: jax.Array) -> jax.Array:
    def cell(state: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        joined = jnp.concatenate([state.astype(e.dtype), *row], -1)
        joint = (product(joined, markov["joint"]) + markov["joint_bias"]).astype(jnp.float32)
        gate, candidate, out = jnp.split(joint, 3, -1)
        kept = jax.nn.sigmoid(gate)
        return kept * state + (1 - kept) * jnp.tanh(candidate), jnp.tanh(out).astype(e.dtype)

    rows = jnp.moveaxis(e, -2, 0), jnp.moveaxis(h, -2, 0)
    start = jnp.zeros((*e.shape[:-2], e.shape[-1]), jnp.float32)
    return jnp.moveaxis(jax.lax.scan(cell, start, rows)[1], 0, -2)


def raw_confidence(head: Mapping[str, jax.Array], h: jax.Array, e: jax.Array) -> jax.Array:
    """Before the sigmoid, in float32. Shapes: h [..., D], e [..., r] -> [...]."""
    x = jnp.concatenate([h, e], -1).astype(jnp.float32)
    return x @ head["weight"].astype(jnp.float32)[0] + head["bias"].astype(jnp.float32)[0]
