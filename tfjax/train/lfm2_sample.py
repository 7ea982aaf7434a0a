"""Many continuations at once by an LFM2, for training drafters: no paging, no host between tokens.

Serving draws the same distributions, in another arithmetic and with other noise.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfjax.kernels.rope import rotate
from tfjax.train.lfm2_dense import Layer, Lfm2Shape, Lfm2Weights, feed_forward
from tfjax.train.small_dense import product, rms_norm

LEAST_TEMPERATURE = 1e-3


class Attended(NamedTuple):
    """Keys and values of an attending layer. Shape: [B, T, kv heads, head]."""

    key: jax.Array
    value: jax.Array


type Cache = Attended | jax.Array
"""Of a layer. A convolution's holds the gated inputs of the places just before. Shape: [B, taps - 1, D]."""


@functools.partial(jax.jit, static_argnames="shape")
def continue_text(
    weights: Lfm2Weights,
    head: jax.Array,
    given: jax.Array,
    given_length: jax.Array,
    temperature: jax.Array,
    key: jax.Array,
    shape: Lfm2Shape,
) -> jax.Array:
    """Draw what follows the first tokens of each row, up to the row's end. Nothing stops at an end token.

    Shapes: given int32 [B, T], given_length int32 [B] (at least 1), temperature float32 [B] (0 is greedy) ->
    int32 [B, T].
    """

    def place(
        carry: tuple[jax.Array, tuple[Cache, ...]], at: jax.Array
    ) -> tuple[tuple[jax.Array, tuple[Cache, ...]], jax.Array]:
        token, caches = carry
        logits, caches = _step(weights, head, shape, token, at, caches)
        noise = jax.random.gumbel(jax.random.fold_in(key, at), logits.shape)
        scaled = logits / jnp.maximum(temperature, LEAST_TEMPERATURE)[:, None]
        drawn = jnp.argmax(jnp.where(temperature[:, None] > 0, scaled + noise, logits), -1).astype(jnp.int32)
        following = jnp.where(at + 1 < given_length, given[:, at + 1], drawn)
        return (following, caches), following

    batch, length = given.shape
    caches = tuple(_empty(layer, shape, batch, length) for layer in weights.layers)
    _, drawn = jax.lax.scan(place, (given[:, 0], caches), jnp.arange(length - 1))
    return jnp.concatenate([given[:, :1], drawn.T], 1)


def _empty(layer: Layer, shape: Lfm2Shape, batch: int, length: int) -> Cache:
    dtype = layer["operator_norm"].dtype
    if "q" in layer:
        zeros = jnp.zeros((batch, length, shape.kv_heads, shape.head_dim), dtype)
        return Attended(zeros, zeros)
    width, taps = layer["conv"].shape
    return jnp.zeros((batch, taps - 1, width), dtype)


def _step(
    weights: Lfm2Weights, head: jax.Array, shape: Lfm2Shape, token: jax.Array, at: jax.Array, caches: tuple[Cache, ...]
) -> tuple[jax.Array, tuple[Cache, ...]]:
    """Logits after one more token of every row, all at the same place. Shapes: int32 [B] -> float32 [B, V]."""
    x = weights.embedding[token][:, None]
    written: list[Cache] = []
    for layer, cache in zip(weights.layers, caches, strict=True):
        h = rms_norm(x, layer["operator_norm"], shape.norm_eps)
        if isinstance(cache, Attended):
            mixed, attended = _attend(h, layer, shape, at, cache)
            written.append(attended)
        else:
            mixed, tail = _convolve(h, layer, cache)
            written.append(tail)
        x = x + mixed
        x = x + feed_forward(rms_norm(x, layer["ffn_norm"], shape.norm_eps), layer, shape)[0]
    x = rms_norm(x[:, 0], weights.norm, shape.norm_eps)
    return product(x, head).astype(jnp.float32), tuple(written)


def _attend(x: jax.Array, layer: Layer, shape: Lfm2Shape, at: jax.Array, cache: Attended) -> tuple[jax.Array, Attended]:
    batch = len(x)
    frequency = jnp.asarray(shape.rope.inverse_frequency(shape.head_dim))
    position = jnp.full(batch, at)

    def heads(name: str) -> jax.Array:
        return product(x, layer[name]).reshape(batch, -1, shape.head_dim)

    q = rotate(rms_norm(heads("q"), layer["q_norm"], shape.norm_eps), position, frequency)
    k = rotate(rms_norm(heads("k"), layer["k_norm"], shape.norm_eps), position, frequency)
    cache = Attended(
        jax.lax.dynamic_update_slice_in_dim(cache.key, k[:, None], at, 1),
        jax.lax.dynamic_update_slice_in_dim(cache.value, heads("v")[:, None], at, 1),
    )
    visible = (jnp.arange(cache.key.shape[1]) <= at)[None, None, None]
    attended = jax.nn.dot_product_attention(q[:, None], cache.key, cache.value, mask=visible)
    return product(attended.reshape(batch, 1, -1), layer["out"]), cache


def _convolve(x: jax.Array, layer: Layer, tail: jax.Array) -> tuple[jax.Array, jax.Array]:
    before, after, value = jnp.split(product(x, layer["conv_in"]), 3, -1)
    seen = jnp.concatenate([tail, before * value], 1)
    y = jnp.sum(seen.astype(jnp.float32) * layer["conv"].T.astype(jnp.float32), 1, keepdims=True)
    return product(after * y.astype(x.dtype), layer["conv_out"]), seen[:, 1:]
