"""One training step of a small target, several to a dispatch: next-token loss, AdamW, routers kept in balance."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from tfjax.train.lfm2_dense import Lfm2Shape, Lfm2Weights
from tfjax.train.target_config import TargetConfig
from tfjax.train.target_model import Biases, logits, random_params, zero_biases

WARMUP_SHARE = 0.02
LAST_RATE_SHARE = 0.02
CLIP_NORM = 1.0
BETAS = (0.9, 0.95)
BALANCE_RATE = 1e-3


@dataclass(frozen=True, slots=True)
class Learning:
    """How the parameters change.

    Attributes:
        rate: highest learning rate.
        seed: of the first parameters and of where rows begin.
    """

    rate: float
    weight_decay: float
    seed: int

    def optimizer(self) -> optax.GradientTransformation:
        """Adam's direction with decay, behind a clip of the gradient's norm; norms do not decay."""
        return optax.chain(
            optax.clip_by_global_norm(CLIP_NORM),
            optax.scale_by_adam(*BETAS),
            optax.add_decayed_weights(self.weight_decay, mask=_decays),
        )

    def first_state(self, config: TargetConfig) -> TrainState:
        params = random_params(config, self.seed)
        return TrainState(params, zero_biases(config), self.optimizer().init(params), jnp.zeros((), jnp.int32))


class TrainState(NamedTuple):
    """All that changes. Donated by the step. `step` counts the steps that were taken."""

    params: Lfm2Weights
    biases: Biases
    optimizer: Any
    step: jax.Array


class Stream(NamedTuple):
    """The corpus, cut into rows of which any piece of the same length may be taken. Shape: uint16 [rows, T]."""

    token: Any


class Plan(NamedTuple):
    """What is read and never written.

    Attributes:
        steps: in all, int32; an argument, so that the schedule needs no compilation of its own.
        held_out: rows to measure the loss on after each dispatch. Shape: uint16 [B, T + 1].
    """

    steps: jax.Array
    held_out: jax.Array


class Metrics(NamedTuple):
    """Of a dispatch.

    Attributes:
        loss: nats a token, of each step.
        held_out: of rows that are not learned, after the last step.
        imbalance: tokens of the busiest expert over those of an average one, mean of the layers, of each step.
    """

    loss: jax.Array
    held_out: jax.Array
    imbalance: jax.Array


type Step = Callable[[TrainState, Plan, Stream, jax.Array], tuple[TrainState, Metrics]]


def make_step(shape: Lfm2Shape, learning: Learning) -> Step:
    """A compiled function that takes several steps in one dispatch.

    It maps (state, plan, corpus, row numbers int32 [steps, batch]) to the new state and metrics.
    """
    optimizer = learning.optimizer()

    @functools.partial(jax.jit, donate_argnums=0)
    def steps(state: TrainState, plan: Plan, data: Stream, rows: jax.Array) -> tuple[TrainState, Metrics]:
        def one(state: TrainState, rows: jax.Array) -> tuple[TrainState, tuple[jax.Array, jax.Array]]:
            batch = cut(data.token, rows, jax.random.fold_in(jax.random.key(learning.seed), state.step))
            gradient, (value, loads) = jax.grad(loss, has_aux=True)(state.params, state.biases, batch, shape)
            updates, inner = optimizer.update(gradient, state.optimizer, state.params)
            rate = rate_at(state.step, plan.steps, learning.rate)
            params = jax.tree.map(lambda leaf, update: leaf - rate * update, state.params, updates)
            after = TrainState(params, balanced(state.biases, loads), inner, state.step + 1)
            return after, (value, imbalance(loads))

        state, (losses, spread) = jax.lax.scan(one, state, rows)
        held_out, _ = loss(state.params, state.biases, plan.held_out.astype(jnp.int32), shape)
        return state, Metrics(losses, held_out, spread)

    return steps


def loss(
    params: Lfm2Weights, biases: Biases, batch: jax.Array, shape: Lfm2Shape
) -> tuple[jax.Array, tuple[jax.Array, list[jax.Array]]]:
    """Mean cross entropy of each token after those before it, in nats; again with the experts' loads.

    Shape: batch int32 [B, T + 1].
    """
    found = logits(params, biases, batch[:, :-1], shape)
    value = jnp.mean(optax.softmax_cross_entropy_with_integer_labels(found.logits, batch[:, 1:]))
    return value, (value, found.loads)


def cut(token: jax.Array, rows: jax.Array, key: jax.Array) -> jax.Array:
    """The rows and one more token each, all begun later by a same random part of a row. Shape: int32 [B, T + 1].

    Other passes over the corpus thus see other contexts. A row that would reach past the end begins earlier.
    """
    count, length = token.shape
    late = jax.random.randint(key, (), 0, length)
    start = jnp.minimum(rows * length + late, count * length - length - 1)
    return token.reshape(-1)[start[:, None] + jnp.arange(length + 1)].astype(jnp.int32)


def rate_at(step: jax.Array, steps: jax.Array, highest: float) -> jax.Array:
    """Learning rate of a step: linear warm-up, then half a cosine down to a fiftieth."""
    warmup = jnp.maximum(1, WARMUP_SHARE * steps)
    share = jnp.clip((step - warmup) / jnp.maximum(1, steps - warmup), 0, 1)
    falling = LAST_RATE_SHARE + (1 - LAST_RATE_SHARE) * 0.5 * (1 + jnp.cos(math.pi * share))
    return highest * jnp.minimum((step + 1) / warmup, falling)


def balanced(biases: Biases, loads: list[jax.Array]) -> Biases:
    """Router biases after a step: up for experts with fewer tokens than the average, down for the others.

    Source: auxiliary-loss-free balancing, arXiv 2408.15664, algorithm 1.
    """
    return tuple(
        bias + BALANCE_RATE * jnp.sign(jnp.mean(load) - load) for bias, load in zip(biases, loads, strict=True)
    )


def imbalance(loads: list[jax.Array]) -> jax.Array:
    """The busiest expert's tokens over an average one's, mean of the layers; 1 is even, and without experts."""
    return jnp.mean(jnp.stack([jnp.max(load) / jnp.mean(load) for load in loads])) if loads else jnp.ones(())


def _decays(params: Lfm2Weights) -> Any:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)
