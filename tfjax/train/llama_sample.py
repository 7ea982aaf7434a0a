"""A Llama answers many prompts side by side, for training drafters: no paging, no host between tokens.

Rows are independent: each has its prompt, its length and its draws, and its place is taken again once it has ended.
Serving draws from the same distributions, in another arithmetic and with other noise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfjax.kernels.rope import rotate
from tfjax.train.dense_target import TargetWeights
from tfjax.train.small_dense import Shape, Weights, product, rms_norm

LEAST_TEMPERATURE = 1e-3


class Attended(NamedTuple):
    """Keys and values of a layer. Shape: [rows, kv heads, T, head]."""

    key: jax.Array
    value: jax.Array


class Answering(NamedTuple):
    """Answers under way.

    Attributes:
        token: the newest token of each row, which no layer has seen yet. Shape: int32 [R].
        length: tokens before it. Shape: int32 [R].
        drawn: the reply so far. Shape: int32 [R, most new].
        replied: how many of those are drawn. Shape: int32 [R].
        alive: whether more are to be drawn. Shape: bool [R].
        temperature: 0 is greedy. Shape: float32 [R].
        seed: of the draws. Shape: uint32 [R].
        caches: a pair for each layer.
    """

    token: jax.Array
    length: jax.Array
    drawn: jax.Array
    replied: jax.Array
    alive: jax.Array
    temperature: jax.Array
    seed: jax.Array
    caches: tuple[Attended, ...]


class Llama(NamedTuple):
    """The weights, layer by layer. Shapes: embedding, head [V, D], norm [D]."""

    embedding: jax.Array
    head: jax.Array
    norm: jax.Array
    layers: tuple[Weights, ...]


class Asked(NamedTuple):
    """Prompts for rows that are free. A row number beyond the last fills up the group and is ignored.

    Shapes: row int32 [G], prompt int32 [G, P] (right-padded), length int32 [G] (at least 1), temperature float32 [G],
    seed uint32 [G].
    """

    row: jax.Array
    prompt: jax.Array
    length: jax.Array
    temperature: jax.Array
    seed: jax.Array


type Attend = Callable[[jax.Array, jax.Array, jax.Array, Attended], tuple[jax.Array, Attended]]
"""Queries, keys and values of the new tokens [B, N, heads, head] and a cache -> attended [B, N, heads, head], cache."""


def llama_of(weights: TargetWeights) -> Llama:
    """The layers' stacked tensors taken apart, so that no step copies a slice of them."""
    embedding, stacked = weights.body
    count = len(next(iter(stacked.values())))
    layers = tuple({name: tensor[i] for name, tensor in stacked.items()} for i in range(count))
    return Llama(embedding, weights.head, weights.norm, layers)


def nothing_asked(llama: Llama, shape: Shape, rows: int, room: int, most_new: int) -> Answering:
    """Only free rows, for prompts of at most `room` tokens."""
    zeros, dtype = jnp.zeros(rows, jnp.int32), llama.embedding.dtype
    size = rows, shape.kv_heads, room + most_new, shape.head_dim
    return Answering(
        token=zeros,
        length=jnp.zeros(rows, jnp.int32),
        drawn=jnp.zeros((rows, most_new), jnp.int32),
        replied=jnp.zeros(rows, jnp.int32),
        alive=jnp.zeros(rows, bool),
        temperature=jnp.zeros(rows, jnp.float32),
        seed=jnp.zeros(rows, jnp.uint32),
        caches=tuple(Attended(jnp.zeros(size, dtype), jnp.zeros(size, dtype)) for _ in llama.layers),
    )


@functools.partial(jax.jit, static_argnames="shape", donate_argnums=1)
def ask(llama: Llama, state: Answering, asked: Asked, shape: Shape) -> Answering:
    """Put prompts into free rows."""
    group, room = asked.prompt.shape

    def attend(q: jax.Array, k: jax.Array, v: jax.Array, cache: Attended) -> tuple[jax.Array, Attended]:
        key, value = (
            old.at[asked.row, :, :room].set(new.swapaxes(1, 2), mode="drop")
            for old, new in zip(cache, (k, v), strict=True)
        )
        return jax.nn.dot_product_attention(q, k, v, is_causal=True), Attended(key, value)

    position = jnp.broadcast_to(jnp.arange(room), (group, room))
    _, caches = _layers(llama.embedding[asked.prompt], llama, shape, position, state.caches, attend)
    last = asked.length - 1

    def put(old: jax.Array, new: jax.Array | int | bool) -> jax.Array:
        return old.at[asked.row].set(new, mode="drop")

    return Answering(
        token=put(state.token, asked.prompt[jnp.arange(group), last]),
        length=put(state.length, last),
        drawn=state.drawn,
        replied=put(state.replied, 0),
        alive=put(state.alive, True),
        temperature=put(state.temperature, asked.temperature),
        seed=put(state.seed, asked.seed),
        caches=caches,
    )


@functools.partial(jax.jit, static_argnames=("shape", "steps", "ends"), donate_argnums=1)
def go_on(llama: Llama, state: Answering, shape: Shape, steps: int, ends: tuple[int, ...]) -> Answering:
    """Draw so many tokens in every row; a row that draws one of `ends`, or is full, stops there."""
    end = jnp.asarray(ends, jnp.int32)
    return jax.lax.scan(lambda state, _: (_step(llama, state, shape, end), None), state, length=steps)[0]


def _step(llama: Llama, state: Answering, shape: Shape, ends: jax.Array) -> Answering:
    row = jnp.arange(len(state.token))
    visible = jnp.arange(state.caches[0].key.shape[2]) <= state.length[:, None]

    def attend(q: jax.Array, k: jax.Array, v: jax.Array, cache: Attended) -> tuple[jax.Array, Attended]:
        key = cache.key.at[row, :, state.length].set(k[:, 0])
        value = cache.value.at[row, :, state.length].set(v[:, 0])
        return _attend_cache(q, key, value, visible), Attended(key, value)

    x, caches = _layers(
        llama.embedding[state.token][:, None], llama, shape, state.length[:, None], state.caches, attend
    )
    logits = product(rms_norm(x[:, 0], llama.norm, shape.norm_eps), llama.head).astype(jnp.float32)
    token = _draw(logits, state)
    most_new = state.drawn.shape[1]
    replied = state.replied + state.alive
    ended = (token[:, None] == ends).any(1) | (replied == most_new)
    return state._replace(
        token=jnp.where(state.alive, token, state.token),
        length=state.length + (state.alive & ~ended),
        drawn=state.drawn.at[row, jnp.where(state.alive, state.replied, most_new)].set(token, mode="drop"),
        replied=replied,
        alive=state.alive & ~ended,
        caches=caches,
    )


def _draw(logits: jax.Array, state: Answering) -> jax.Array:
    """The likeliest token, or one drawn with noise that the row's seed and the place decide. Shape: int32 [R]."""

    def noise(seed: jax.Array, place: jax.Array) -> jax.Array:
        return jax.random.gumbel(jax.random.fold_in(jax.random.key(seed), place), logits.shape[1:])

    temperature = state.temperature[:, None]
    scaled = logits / jnp.maximum(temperature, LEAST_TEMPERATURE)
    noisy = scaled + jax.vmap(noise)(state.seed, state.replied)
    return jnp.argmax(jnp.where(temperature > 0, noisy, logits), -1).astype(jnp.int32)


def _attend_cache(q: jax.Array, key: jax.Array, value: jax.Array, visible: jax.Array) -> jax.Array:
    """One query a row over what the row has cached. Shapes: q [R, 1, heads, head], visible bool [R, T] -> as q."""
    rows, _, heads, width = q.shape
    grouped = q.reshape(rows, key.shape[1], -1, width)
    scores = jnp.einsum("rkgd,rktd->rkgt", grouped, key, preferred_element_type=jnp.float32) * width**-0.5
    weights = jax.nn.softmax(jnp.where(visible[:, None, None], scores, -jnp.inf), -1).astype(value.dtype)
    return jnp.einsum("rkgt,rktd->rkgd", weights, value).reshape(rows, 1, heads, width)


def _layers(
    x: jax.Array, llama: Llama, shape: Shape, position: jax.Array, caches: tuple[Attended, ...], attend: Attend
) -> tuple[jax.Array, tuple[Attended, ...]]:
    """All layers in turn. Shapes: x [B, N, D], position int32 [B, N] -> [B, N, D], not normed, and the caches."""
    batch, new, _ = x.shape
    frequency = jnp.asarray(shape.rope.inverse_frequency(shape.head_dim))
    flat = position.reshape(-1)
    written: list[Attended] = []
    for weights, cache in zip(llama.layers, caches, strict=True):
        h = rms_norm(x, weights["attention_norm"], shape.norm_eps)
        q, k, v = (product(h, weights[name]).reshape(batch * new, -1, shape.head_dim) for name in "qkv")
        q, k = rotate(q, flat, frequency), rotate(k, flat, frequency)
        q, k, v = (part.reshape(batch, new, -1, shape.head_dim) for part in (q, k, v))
        attended, cache_now = attend(q, k, v, cache)
        written.append(cache_now)
        x = x + product(attended.reshape(batch, new, -1), weights["o"])
        h = rms_norm(x, weights["mlp_norm"], shape.norm_eps)
        gate, up = (product(h, weights[name]).astype(jnp.float32) for name in ("gate", "up"))
        x = x + product((jax.nn.silu(gate) * up).astype(x.dtype), weights["down"])
    return x, tuple(written)
