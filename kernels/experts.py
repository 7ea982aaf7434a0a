"""Gated feed-forward experts over flat rows, each row through the few that it chose.

A row's experts are computed by products whose bits do not depend on the rows beside it, and their results are summed
in the order of the row's own ranking.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfjax.kernels.matmul import rows_matmul
from tfjax.kernels.packed import Weight, expanded
from tfjax.kernels.reduce import in_turn

LEAST_TILE, MOST_TILE = 4, 64
"""Rows that an expert takes at a time where rows are grouped by expert. One of fewer rows would be another product."""


class Experts(NamedTuple):
    """Weights of all experts. Shapes: gate_up [E, 2I, D] (gate first), down [E, D, I], dense or packed."""

    gate_up: Weight
    down: Weight


def experts_mlp(x: jax.Array, chosen: jax.Array, weight: jax.Array, experts: Experts) -> jax.Array:
    """Sum over a row's experts of weight * down(silu(gate x) * up x), accumulated in float32 and rounded once.

    Shapes: x [R, D], chosen int32 [R, k] by rank, weight float32 [R, k] -> [R, D] in the dtype of x.
    """
    outputs: jax.Array = jax.lax.platform_dependent(x, chosen, experts, cuda=all_experts, default=grouped_by_expert)
    return in_order_of_rank(outputs, weight).astype(x.dtype)


def in_order_of_rank(outputs: jax.Array, weight: jax.Array) -> jax.Array:
    """Weighted sum over the second axis, first to last. Shapes: outputs [R, k, D], weight [R, k] -> [R, D]."""
    return in_turn([outputs[:, rank] * weight[:, rank : rank + 1] for rank in range(weight.shape[1])])


def all_experts(x: jax.Array, chosen: jax.Array, experts: Experts) -> jax.Array:
    """Every expert over every row, and then each row's own picked out: few kernels, which is what a GPU needs.

    Shapes: as `experts_mlp` -> float32 [R, k, D].
    """
    count, double, size = experts.gate_up.shape
    gate_up = rows_matmul(x, expanded(experts.gate_up).reshape(count * double, size)).reshape(-1, count, double)
    inner, down = _gated(gate_up, x.dtype), expanded(experts.down)
    outputs = jax.lax.dot_general(inner, down, (((2,), (2,)), ((1,), (0,))), preferred_element_type=jnp.float32)
    return outputs[chosen, jnp.arange(x.shape[0])[:, None]]


def grouped_by_expert(x: jax.Array, chosen: jax.Array, experts: Experts) -> jax.Array:
    """Only what was chosen: rows sorted by expert and taken in tiles of one expert each.

    Shapes: as `experts_mlp` -> float32 [R, k, D].
    """
    rows, ranks = chosen.shape
    tile = tile_rows(rows, ranks, experts.gate_up.shape[0])
    groups = _grouped(chosen, experts.gate_up.shape[0], tile)

    def one_tile(number: jax.Array, outputs: jax.Array) -> jax.Array:
        expert = jnp.searchsorted(groups.last_tile, number, side="right")
        first = (number - groups.first_tile[expert]) * tile
        pair = jax.lax.dynamic_slice_in_dim(groups.pair, groups.start[expert] + first, tile)
        own = jax.tree.map(functools.partial(jax.lax.dynamic_index_in_dim, index=expert, keepdims=False), experts)
        inner = _gated(rows_matmul(x[pair // ranks], own.gate_up), x.dtype)
        real = jnp.where(first + jnp.arange(tile) < groups.rows[expert], pair, rows * ranks)
        return outputs.at[real].set(rows_matmul(inner, own.down), mode="drop")

    outputs = jnp.zeros((rows * ranks, x.shape[1]), jnp.float32)
    outputs = jax.lax.fori_loop(0, groups.last_tile[-1], one_tile, outputs)
    by_rank: jax.Array = outputs.reshape(rows, ranks, -1)
    return by_rank


def tile_rows(rows: int, ranks: int, experts: int) -> int:
    """What an expert gets on average, as a power of two within bounds; no more than there are rows."""
    average = -(-rows * ranks // experts)
    return min(max(rows, 2), max(LEAST_TILE, min(MOST_TILE, 1 << (average - 1).bit_length())))


class _Groups(NamedTuple):
    """Pairs of row and rank (row * k + rank) sorted by expert, then tile by tile. Shapes: pair [R * k + tile], [E]."""

    pair: jax.Array
    start: jax.Array
    rows: jax.Array
    first_tile: jax.Array
    last_tile: jax.Array


def _grouped(chosen: jax.Array, experts: int, tile: int) -> _Groups:
    """`last_tile` is the first tile of the next expert. Shape: chosen int32 [R, k]."""
    flat = chosen.reshape(-1)
    pair = jnp.pad(jnp.argsort(flat, stable=True).astype(jnp.int32), (0, tile))
    count = jnp.sum(flat[:, None] == jnp.arange(experts), 0, dtype=jnp.int32)
    tiles = (count + tile - 1) // tile
    last_tile = jnp.cumsum(tiles)
    return _Groups(pair, jnp.cumsum(count) - count, count, last_tile - tiles, last_tile)


def _gated(gate_up: jax.Array, dtype: jnp.dtype) -> jax.Array:
    gate, up = jnp.split(gate_up, 2, -1)
    return (jax.nn.silu(gate) * up).astype(dtype)
