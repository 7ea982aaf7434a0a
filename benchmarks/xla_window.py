"""A Llama's window as XLA likes it best: plain products of any rows, and attention over one contiguous cache.

Its rows are not invariant. It stands beside the served forward, to tell what invariance costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.engine.weights import LoadedModel
from tfjax.kernels.rope import rotate
from tfjax.models.llama import LlamaConfig


def dense_window(model: LoadedModel, rows: int, past: int, *, drawn: int = 0) -> Callable[[], jax.Array]:
    """A call that computes `rows` positions after `past` others and gives logits of the last `drawn`, or of all for 0.

    The model is one of modules.
    """
    config: LlamaConfig = model.config
    definition, parameters = nnx.split(model.module)
    shape = (2, past + rows, config.kv_heads, config.head_dim)
    cache = [jnp.zeros(shape, model.dtype) for _ in range(config.layers)]
    token, position = jnp.arange(rows) % config.vocab, past + jnp.arange(rows)

    def step(parameters: Any, cache: list[jax.Array], token: jax.Array) -> Any:
        module: Any = nnx.merge(definition, parameters)
        x, written = module.embedding[...][token], []
        for layer, before in zip(module.layers, cache, strict=True):
            mixed, kept = _attention(config, layer, x, before, position)
            x = x + mixed
            gate, up = jnp.split(_product(_norm(config, layer.mlp_norm, x), layer.mlp.gate_up.weight[...]), 2, -1)
            x = x + _product(jax.nn.silu(gate) * up, layer.mlp.down.weight[...])
            written.append(kept)
        return _product(_norm(config, module.norm, x[-drawn:]), module.head_weight).astype(jnp.float32), written

    program = jax.jit(step, donate_argnums=1)

    def call() -> jax.Array:
        nonlocal cache
        logits, cache = program(parameters, cache, token)
        made: jax.Array = logits
        return made

    return call


def _attention(
    config: LlamaConfig, layer: Any, x: jax.Array, kept: jax.Array, position: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Shapes: x [R, D], kept [2, past + R, K, H] (keys and values)."""
    rows, heads, kv_heads, size = len(x), config.heads, config.kv_heads, config.head_dim
    qkv = _product(_norm(config, layer.attention_norm, x), layer.attention.qkv.weight[...])
    q, k, v = jnp.split(qkv.reshape(rows, -1, size), (heads, heads + kv_heads), 1)
    frequency = jnp.asarray(config.rope.inverse_frequency(size))
    new = jnp.stack([rotate(k, position, frequency), v])
    kept = jax.lax.dynamic_update_slice(kept, new, (0, kept.shape[1] - rows, 0, 0))
    q = rotate(q, position, frequency).reshape(rows, kv_heads, heads // kv_heads, size)
    scores = jnp.einsum("rkgh,tkh->rkgt", q, kept[0], preferred_element_type=jnp.float32) / size**0.5
    seen = jnp.arange(kept.shape[1]) <= position[:, None]
    weight = jax.nn.softmax(jnp.where(seen[:, None, None], scores, -jnp.inf), -1).astype(x.dtype)
    out = jnp.einsum("rkgt,tkh->rkgh", weight, kept[1]).reshape(rows, heads * size)
    return _product(out, layer.attention.out.weight[...]), kept


def _norm(config: LlamaConfig, norm: Any, x: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + config.norm_eps)
    normed: jax.Array = (wide * scale).astype(x.dtype) * norm.weight[...]
    return normed


def _product(x: jax.Array, weight: jax.Array) -> jax.Array:
    """x @ weight.T in the type of x. Shapes: x [R, in], weight [out, in]."""
    return jax.lax.dot_general(x, weight, (((1,), (1,)), ((), ())))
