"""The choice of experts: a block a row, which takes the largest score and strikes it out, rank by rank."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.choose_experts import ChoiceRule
from tfjax.kernels.gpu.launch import PLAIN, Grid, Launch, launch, scalar
from tfjax.kernels.gpu.tiles import put, row_layout
from tfjax.kernels.routes import Unsupported

RANKS = 32
"""Columns of the results: the least that a warp holds. To cut them off would be another kernel."""


def choose_experts(
    parts: jax.Array,
    bias: jax.Array | None,
    layer: jax.Array,
    count: jax.Array,
    *,
    rule: ChoiceRule,
    how: Launch = PLAIN,
) -> tuple[jax.Array, jax.Array]:
    """The device route of `tfjax.kernels.choose_experts.choose_experts`."""
    _, rows, columns = parts.shape
    row_layout(columns)  # Refuses what does not fit before anything is traced.
    if rule.picked > RANKS:
        raise Unsupported(f"{rule.picked} experts a row; the device route takes {RANKS}, use the reference route")
    # Without a bias another operand stands for it and is left alone.
    operands = [scalar(layer), scalar(count), parts, parts if bias is None else bias]
    (chosen, weight), _ = launch(
        functools.partial(_body, rule=rule, biased=bias is not None),
        Grid((("row", rows),)),
        [jax.ShapeDtypeStruct((rows, RANKS), kind) for kind in (jnp.int32, jnp.float32)],
        operands,
        name=f"choose_{rule.picked}_of_{rule.experts}",
        how=how,
    )
    return chosen, weight


def _body(
    layer_ref: Any,
    count_ref: Any,
    parts_ref: Any,
    bias_ref: Any,
    chosen_ref: Any,
    weight_ref: Any,
    *,
    rule: ChoiceRule,
    biased: bool,
) -> None:
    row, columns = lax.axis_index("row"), parts_ref.shape[2]
    layout, ranks = row_layout(columns), row_layout(RANKS)

    def read(ref: Any) -> Any:
        return plgpu.load(ref, layout=layout, optimized=False)

    @pl.when(row < count_ref[0])
    def _() -> None:
        # Places as float32, which holds them exactly.
        place = plgpu.broadcasted_iota(jnp.float32, (columns,), 0, layout=layout)
        logits = functools.reduce(
            lambda a, b: a + b, [read(parts_ref.at[part, row]) for part in range(parts_ref.shape[0])]
        )
        score = 1 / (1 + jnp.exp(-logits))
        ranked = score + read(bias_ref.at[layer_ref[0]]) if biased else score
        ranked = jnp.where(place < rule.experts, ranked, -jnp.inf)
        chosen, weights = [], []
        for _ in range(rule.picked):
            best = jnp.max(ranked)
            # NaN equals nothing, and a row of it still has to name an expert that exists.
            first = jnp.minimum(jnp.min(jnp.where(ranked == best, place, float(columns))), rule.experts - 1.0)
            own = place == first
            chosen.append(first)
            weights.append(jnp.sum(jnp.where(own, score, 0.0)))
            ranked = jnp.where(own, -jnp.inf, ranked)
        total = functools.reduce(lambda a, b: a + b, weights) + rule.eps
        rank = plgpu.broadcasted_iota(jnp.float32, (RANKS,), 0, layout=ranks)
        numbers, factors = jnp.full_like(rank, -1), jnp.zeros_like(rank)
        for number, (expert, weight) in enumerate(zip(chosen, weights, strict=True)):
            factor = (weight / total if rule.normalised else weight) * rule.scale
            numbers = jnp.where(rank == float(number), expert, numbers)
            factors = jnp.where(rank == float(number), factor, factors)
        put(chosen_ref.at[row], numbers.astype(jnp.int32))
        put(weight_ref.at[row], factors)
