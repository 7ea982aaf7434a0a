"""The loss of a small drafter and the compiled step that lowers it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from tfjax.train.small_config import SmallConfig
from tfjax.train.small_data import PROMPT, REPLY, Packed
from tfjax.train.small_dense import Places, Shape, places
from tfjax.train.small_model import Frozen, Params, student_logits
from tfjax.train.small_target import Teacher, teacher_logits

WARMUP_SHARE = 0.05
LAST_RATE_SHARE = 0.05
CLIP_NORM = 1.0
BETAS = (0.9, 0.95)


@dataclass(frozen=True, slots=True)
class Objective:
    """What is learned from a position.

    Attributes:
        teacher_weight: share of the divergence from the target's distribution; the rest is the cross entropy of the
            reply's token. Of no effect without a teacher.
        prompt_weight: weight of a prompt's token; a reply's has 1.
    """

    teacher_weight: float
    prompt_weight: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """Learning rate: linear warm-up, then half a cosine down to a twentieth."""

    rate: float
    steps: int
    weight_decay: float

    def optimizer(self) -> optax.GradientTransformation:
        """AdamW behind a clip of the gradient's norm; norms do not decay."""
        rate = optax.warmup_cosine_decay_schedule(
            0.0, self.rate, max(1, round(self.steps * WARMUP_SHARE)), max(2, self.steps), self.rate * LAST_RATE_SHARE
        )
        adam = optax.adamw(rate, *BETAS, weight_decay=self.weight_decay, mask=_decays)
        return optax.chain(optax.clip_by_global_norm(CLIP_NORM), adam)


class TrainState(NamedTuple):
    """All that changes. Donated by the step."""

    params: Params
    optimizer: Any


class Metrics(NamedTuple):
    """Of one step.

    Attributes:
        loss: what is lowered.
        cross_entropy: of the reply tokens that can be drafted, in nats.
        divergence: from the teacher's distribution over the draft vocabulary, in nats; 0 without a teacher.
        agreement: share of reply tokens that are the drafter's likeliest.
    """

    loss: jax.Array
    cross_entropy: jax.Array
    divergence: jax.Array
    agreement: jax.Array


class Models(NamedTuple):
    """What is read and never written. `teacher` is None where only the replies teach."""

    frozen: Frozen
    teacher: Teacher | None


type Step = Callable[[TrainState, Models, Packed, jax.Array], tuple[TrainState, Metrics]]


def make_step(config: SmallConfig, target: Shape, objective: Objective, schedule: Schedule) -> Step:
    """A compiled function that takes several steps in one dispatch.

    It maps (state, models, all rows, row numbers int32 [steps, batch]) to the new state and metrics of each step.
    """
    optimizer = schedule.optimizer()

    @functools.partial(jax.jit, donate_argnums=0)
    def steps(state: TrainState, models: Models, data: Packed, rows: jax.Array) -> tuple[TrainState, Metrics]:
        def one(state: TrainState, rows: jax.Array) -> tuple[TrainState, Metrics]:
            batch = Packed(*(part[rows] for part in data))
            gradient, metrics = jax.grad(loss, has_aux=True)(state.params, models, batch, config, target, objective)
            updates, inner = optimizer.update(gradient, state.optimizer, state.params)
            return TrainState(optax.apply_updates(state.params, updates), inner), metrics

        return jax.lax.scan(one, state, rows)

    return steps


def loss(
    params: Params, models: Models, batch: Packed, config: SmallConfig, target: Shape, objective: Objective
) -> tuple[jax.Array, Metrics]:
    """Mean over the weighted positions. The token at a position is predicted from those before it."""
    at = places(batch.segment, batch.position)
    log_q = jax.nn.log_softmax(student_logits(params, models.frozen, batch.token, config, at)[:, :-1])
    label = models.frozen.draft_of[batch.token[:, 1:]]
    known = label >= 0
    same = batch.segment[:, 1:] == batch.segment[:, :-1]
    kind = batch.kind[:, 1:]
    reply = same & (kind == REPLY)
    weight = reply + objective.prompt_weight * (same & (kind == PROMPT))
    cross = -jnp.take_along_axis(log_q, jnp.maximum(label, 0)[..., None], -1)[..., 0] * known
    if models.teacher is None:
        divergence = jnp.zeros_like(cross)
        lowered = cross
    else:
        divergence = _divergence(models, batch, target, at, log_q)
        lowered = objective.teacher_weight * divergence + (1 - objective.teacher_weight) * cross
    value = _mean(lowered, weight)
    agreement = _mean(known & (jnp.argmax(log_q, -1) == label), reply)
    return value, Metrics(value, _mean(cross, reply * known), _mean(divergence, reply), agreement)


def _divergence(models: Models, batch: Packed, target: Shape, at: Places, log_q: jax.Array) -> jax.Array:
    """Kullback-Leibler divergence of q from the target, both over the draft vocabulary. Shape: [B, T - 1]."""
    assert models.teacher is not None
    logits = teacher_logits(models.teacher, models.frozen.embedding, batch.token, target, at)[:, :-1]
    log_p = jax.lax.stop_gradient(jax.nn.log_softmax(logits))
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q), -1)


def _mean(value: jax.Array, weight: jax.Array) -> jax.Array:
    return jnp.sum(value * weight) / jnp.maximum(jnp.sum(weight), 1)


def _decays(params: Params) -> Any:
    return jax.tree.map_with_path(lambda path, _: "norm" not in jax.tree_util.keystr(path), params)
