"""Which experts a row goes through and with what weights: the rule that follows a router's product."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfjax.kernels.reduce import in_order, in_turn
from tfjax.kernels.routes import Route


class ChoiceRule(NamedTuple):
    """How scores become a choice.

    Attributes:
        experts: how many of the columns are experts'; the others are padding.
        picked: experts that a row goes through.
        normalised: whether a row's weights are made to sum to 1.
        scale: factor on the weights.
        eps: added to the sum that weights are divided by.
    """

    experts: int
    picked: int
    normalised: bool
    scale: float
    eps: float


def choose_experts(
    parts: jax.Array,
    bias: jax.Array | None,
    layer: jax.Array,
    count: jax.Array,
    *,
    rule: ChoiceRule,
    route: Route = Route.REFERENCE,
) -> tuple[jax.Array, jax.Array]:
    """The experts of the largest sigmoid(logits) + bias, best first (the lower one on ties), and their weights.

    Logits are the parts of the router's product, added in order. The bias decides the choice alone: weights are made of
    the sigmoids. All of it is float32.

    Shapes: parts float32 [split, R, columns], bias float32 [L, columns] or None, layer and count int32 [] (rows from
    count on have no meaning, and may name experts that do not exist) -> int32 and float32 [R, picked or more]; further
    columns are -1 and 0.

    Raises:
        Unsupported: where the device route cannot hold a row of columns.
    """
    return ROUTES[route](parts, bias, layer, count, rule)


def _reference(
    parts: jax.Array, bias: jax.Array | None, layer: jax.Array, count: jax.Array, rule: ChoiceRule
) -> tuple[jax.Array, jax.Array]:
    score = jax.nn.sigmoid(in_order(parts[:, :, : rule.experts]))
    ranked = score if bias is None else score + bias[layer, : rule.experts]
    _, chosen = jax.lax.top_k(ranked, rule.picked)
    weight = jnp.take_along_axis(score, chosen, 1)
    if rule.normalised:
        total = in_turn([weight[:, rank : rank + 1] for rank in range(rule.picked)])
        weight = weight / (total + rule.eps)
    return chosen, weight * rule.scale


def _gpu(
    parts: jax.Array, bias: jax.Array | None, layer: jax.Array, count: jax.Array, rule: ChoiceRule
) -> tuple[jax.Array, jax.Array]:
    from tfjax.kernels.gpu import choose_experts as gpu

    return gpu.choose_experts(parts, bias, layer, count, rule=rule)


ROUTES: dict[
    Route,
    Callable[
        [jax.Array, jax.Array | None, jax.Array, jax.Array, ChoiceRule],
        tuple[jax.Array, jax.Array],
    ],
] = {Route.REFERENCE: _reference, Route.PALLAS_GPU: _gpu}
