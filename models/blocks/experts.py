"""A feed-forward block of which each row uses a few experts."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.kernels.choose_experts import ChoiceRule, choose_experts
from tfjax.kernels.experts import Experts, experts_mlp
from tfjax.kernels.matmul import rows_matmul
from tfjax.kernels.packed import expanded

NORM_EPS = 1e-6
"""Added to the sum that weights are divided by."""

LEAST_OUTPUTS = 8
"""Products of fewer outputs have other bits for some row counts."""


@dataclass(frozen=True, slots=True)
class ExpertsConfig:
    """Shapes and rules of the experts.

    Attributes:
        count: experts in all.
        picked: experts that a row goes through.
        inner: width of each.
        biased: whether choosing (not weighting) adds a learned bias.
        normalised: whether a row's weights are made to sum to 1.
        scale: factor on the weights.
    """

    count: int
    picked: int
    inner: int
    biased: bool
    normalised: bool
    scale: float

    @property
    def rule(self) -> ChoiceRule:
        """How scores become a choice."""
        return ChoiceRule(self.count, self.picked, self.normalised, self.scale, NORM_EPS)


class Router(nnx.Module):
    """Which experts a row goes through, and with what weights: by sigmoid, in float32."""

    def __init__(self, hidden: int, config: ExpertsConfig, dtype: jnp.dtype):
        self.config = config
        self.weight = nnx.Param(jnp.zeros((config.count, hidden), dtype))
        self.bias = nnx.Param(jnp.zeros(config.count, jnp.float32)) if config.biased else None

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Shapes: x [R, D] -> experts int32 [R, picked], best first (the lower one on ties), weights float32 alike."""
        gate = jnp.pad(expanded(self.weight[...]), ((0, max(0, LEAST_OUTPUTS - self.config.count)), (0, 0)))
        bias = None if self.bias is None else self.bias[...][None]
        scores = rows_matmul(x, gate)[None]
        return choose_experts(scores, bias, jnp.int32(0), jnp.int32(len(x)), rule=self.config.rule)


class ExpertsMLP(nnx.Module):
    """The weighted sum of a row's experts. Shapes: gate_up [E, 2I, D] (gate first), down [E, D, I], dense or packed."""

    def __init__(self, hidden: int, config: ExpertsConfig, dtype: jnp.dtype):
        self.router = Router(hidden, config, dtype)
        self.gate_up = nnx.Param(jnp.zeros((config.count, 2 * config.inner, hidden), dtype))
        self.down = nnx.Param(jnp.zeros((config.count, hidden, config.inner), dtype))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Shapes: x [R, D] -> [R, D]."""
        return experts_mlp(x, *self.router(x), Experts(self.gate_up[...], self.down[...]))
