"""The compiled step that lowers the loss of a DSpark drafter."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from tfjax.models.dspark_config import DSparkConfig
from tfjax.train.dense_target import TargetShape
from tfjax.train.dspark_blocks import Rows, sample_anchors
from tfjax.train.dspark_dense import Params
from tfjax.train.dspark_loss import Metrics, Models, Objective, loss

WARMUP_SHARE = 0.04
LAST_RATE_SHARE = 0.05
CLIP_NORM = 1.0
BETAS = (0.9, 0.95)


class Knobs(NamedTuple):
    """Numbers of a run that are arguments of its program, so that runs share one.

    Attributes:
        rate: highest learning rate: float32.
        norm_rate: what the rate of q_norm and k_norm is multiplied with: float32.
        steps: in all: int32.
        seed: of the anchors: uint32.
    """

    rate: jax.Array
    norm_rate: jax.Array
    steps: jax.Array
    seed: jax.Array


class Given(NamedTuple):
    """What the step reads."""

    models: Models
    knobs: Knobs


class TrainState(NamedTuple):
    """All that changes. Donated by the step. `step` int32 counts steps taken."""

    params: Params
    optimizer: Any
    step: jax.Array


type Step = Callable[[TrainState, Given, Rows, jax.Array], tuple[TrainState, Metrics]]


def knobs(rate: float, norm_rate: float, steps: int, seed: int) -> Knobs:
    return Knobs(jnp.float32(rate), jnp.float32(norm_rate), jnp.int32(steps), jnp.uint32(seed))


def optimizer() -> optax.GradientTransformation:
    """Adam behind a clip of the gradient's norm, before the learning rate."""
    return optax.chain(optax.clip_by_global_norm(CLIP_NORM), optax.scale_by_adam(*BETAS))


def first_state(params: Params) -> TrainState:
    return TrainState(params, optimizer().init(params), jnp.int32(0))


def learning_rate(knobs: Knobs, step: jax.Array) -> jax.Array:
    """Linear warm-up, then half a cosine down to a twentieth."""
    warmup = jnp.maximum(1, jnp.round(knobs.steps * WARMUP_SHARE))
    done = jnp.clip((step - warmup) / jnp.maximum(1, knobs.steps - warmup), 0, 1)
    falling = LAST_RATE_SHARE + (1 - LAST_RATE_SHARE) * 0.5 * (1 + jnp.cos(jnp.pi * done))
    return knobs.rate * jnp.where(step < warmup, (step + 1) / warmup, falling)


@functools.lru_cache(maxsize=8)
def make_step(config: DSparkConfig, target: TargetShape, objective: Objective, anchors: int) -> Step:
    """A compiled function that takes several steps in one dispatch.

    It maps (state, given, all rows, row numbers int32 [steps, batch]) to the new state and metrics of each step.
    `anchors` blocks are drafted in each row. Equal arguments share one program.
    """
    adam = optimizer()

    @functools.partial(jax.jit, donate_argnums=0)
    def steps(state: TrainState, given: Given, data: Rows, rows: jax.Array) -> tuple[TrainState, Metrics]:
        def one(state: TrainState, rows: jax.Array) -> tuple[TrainState, Metrics]:
            batch: Rows = jax.tree.map(lambda part: part[rows], data)
            key = jax.random.fold_in(jax.random.key(given.knobs.seed), state.step)
            anchor = sample_anchors(key, batch.packed, anchors)
            gradient, metrics = jax.grad(loss, has_aux=True)(
                state.params, given.models, batch, anchor, config, target, objective
            )
            updates, inner = adam.update(gradient, state.optimizer, state.params)
            params = optax.apply_updates(state.params, _paced(updates, given.knobs, state.step))
            return TrainState(params, inner, state.step + 1), metrics

        return jax.lax.scan(one, state, rows)

    return steps


def _paced(updates: Any, knobs: Knobs, step: jax.Array) -> Any:
    rate = learning_rate(knobs, step)

    def paced(path: Any, update: jax.Array) -> jax.Array:
        name = str(path[-1].key)
        return -rate * (knobs.norm_rate if name in ("q_norm", "k_norm") else 1.0) * update

    return jax.tree.map_with_path(paced, updates)
