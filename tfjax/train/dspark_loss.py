"""What the drafts of a block are taught. Source: DeepSpec's DSpark, loss; arXiv 2607.05147."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfjax.models.dspark_config import DSparkConfig
from tfjax.train.dense_target import TargetShape, TargetWeights
from tfjax.train.dspark_blocks import Blocks, Rows, lay_out, take_states
from tfjax.train.dspark_coupling import likely_columns, log_kept
from tfjax.train.dspark_dense import (
    Params,
    block_states,
    embed_previous,
    lowered,
    markov_features,
    raw_confidence,
)
from tfjax.train.small_data import Packed
from tfjax.train.small_dense import places, rms_norm

MOST_LOGITS = 1 << 28
"""Logits that are held at once; more rows than these take turns."""


class SureOf(enum.Enum):
    """What a confidence means.

    OVERLAP: share of the distributions that overlap. GREEDY: whether both sides' likeliest tokens are one.
    KEPT: the chance that the draft is kept, drawn as the reply was: with shared noise, or greedy.
    """

    OVERLAP = "overlap"
    GREEDY = "greedy"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Objective:
    """Weights of the parts of the loss.

    Attributes:
        cross: of the reply's token.
        distance: of the summed distance between drafter's and target's distribution, twice the share of sampled drafts
            that rejection sampling would refuse.
        divergence: of the drafter's Kullback-Leibler divergence from the target.
        confidence: of the confidence head's cross entropy.
        decay: drafts at which a place's weight has fallen to 1/e.
        sure_of: what the confidence head learns.
        coupling: weight of the chance that both sides do not draw one token, sharing their noise.
        matched: distributions of a drawn reply are compared at its temperature; else at 1.
        greedy_temperature: at which those of a greedy reply are.
    """

    cross: float
    distance: float
    divergence: float
    confidence: float
    decay: float
    sure_of: SureOf
    coupling: float = 0.0
    matched: bool = False
    greedy_temperature: float = 1.0

    def compared_at(self, temperature: jax.Array) -> jax.Array:
        """What logits are divided by. Shapes: float32 [B] (0: greedy) -> float32 [B]."""
        return jnp.where(temperature > 0, temperature if self.matched else 1.0, self.greedy_temperature)


class Models(NamedTuple):
    """What a step reads and never writes.

    Attributes:
        target: its weights.
        head_rows: the target's head of the tokens that can be drafted. Shape: [C, D].
        ids: these tokens. Shape: int32 [C].
        draft_of: the other way round, -1 for none. Shape: int32 [V].
        previous_of: a token's row in the Markov head, -1 for none. Shape: int32 [V].
    """

    target: TargetWeights
    head_rows: jax.Array
    ids: jax.Array
    draft_of: jax.Array
    previous_of: jax.Array


class Terms(NamedTuple):
    """Per draft. Shapes: [B, N, K].

    Attributes:
        cross, distance, divergence, coupling, confidence: parts of the loss before their weights.
        agrees: bool, the drafter's likeliest token is the target's.
    """

    cross: jax.Array
    distance: jax.Array
    divergence: jax.Array
    coupling: jax.Array
    confidence: jax.Array
    agrees: jax.Array


class Metrics(NamedTuple):
    """Of one step; parts of the loss are means with the weights of their places.

    Attributes:
        agreement: share of first drafts that are the target's likeliest token.
        kept: drafts of a block before the first that is not.
    """

    loss: jax.Array
    cross: jax.Array
    distance: jax.Array
    divergence: jax.Array
    coupling: jax.Array
    confidence: jax.Array
    agreement: jax.Array
    kept: jax.Array


class Judged(NamedTuple):
    """What the target says of drafts. Shapes: [..., N, K].

    Attributes:
        total: logarithm of the summed exponentials of all its logits, divided by the temperature.
        likeliest: its likeliest token.
        likely: columns of likely tokens among those that can be drafted. Shape: [..., N, K, k].
    """

    total: jax.Array
    likeliest: jax.Array
    likely: jax.Array


class Read(NamedTuple):
    """What the target makes of rows: its final-normed states [B, T, D] and features [B, T, taps * D]."""

    states: jax.Array
    features: jax.Array


def run_target(target: TargetShape, weights: TargetWeights, batch: Packed, taps: tuple[int, ...]) -> Read:
    """One dense forward of the target, through which no gradient flows."""
    at = places(batch.segment, batch.position)
    hidden, features = target.forward(weights.body, target.config, batch.token, at, taps)
    states = rms_norm(hidden, weights.norm, target.norm_eps)
    return jax.lax.stop_gradient(Read(states, features))


def loss(
    params: Params,
    models: Models,
    rows: Rows,
    anchor: jax.Array,
    config: DSparkConfig,
    target: TargetShape,
    objective: Objective,
) -> tuple[jax.Array, Metrics]:
    """Mean over the drafts of all blocks, later places weighing less. Shape: anchor int32 [B, N]."""
    batch = rows.packed
    read = run_target(target, models.target, batch, config.taps)
    blocks = lay_out(batch, anchor, config.block, config.mask_token)
    low = lowered(params, read.features.dtype)
    h = block_states(low, models.target.embedding, read.features, batch.position, blocks, config)
    states = take_states(read.states, blocks)
    terms = block_terms(low, models, h, states, blocks, rows.temperature, config, objective)
    weight = blocks.live * jnp.exp(-jnp.arange(config.block) / objective.decay)
    cross, distance, divergence, coupling, confidence = (_mean(part, weight) for part in terms[:5])
    value = (
        objective.cross * cross
        + objective.distance * distance
        + objective.divergence * divergence
        + objective.coupling * coupling
        + objective.confidence * confidence
    )
    first = blocks.live[..., 0]
    agrees = terms.agrees & blocks.live
    kept = jnp.sum(jnp.cumprod(agrees, -1), -1)
    parts = (cross, distance, divergence, coupling, confidence)
    return value, Metrics(value, *parts, _mean(agrees[..., 0], first), _mean(kept, first))


def block_terms(
    low: Params,
    models: Models,
    h: jax.Array,
    states: jax.Array,
    blocks: Blocks,
    temperature: jax.Array,
    config: DSparkConfig,
    objective: Objective,
) -> Terms:
    """The parts of the loss, a few rows at a time so that logits never fill the memory.

    Shapes: h, states [B, N, K, D], temperature float32 [B].
    """
    divisor = objective.compared_at(temperature)
    e = embed_previous(low["markov"], models.previous_of, blocks.previous)
    features = markov_features(low["markov"], config.markov, e, h)

    def judged(row: tuple[jax.Array, jax.Array]) -> Judged:
        state, divisor = row
        wide = _wide_product(state, models.target.head) / divisor
        likely = likely_columns(_wide_product(state, models.head_rows))
        return Judged(jax.nn.logsumexp(wide, -1), jnp.argmax(wide, -1), likely)

    @jax.checkpoint
    def of_row(row: tuple[jax.Array, ...]) -> Terms:
        h, e, features, state, label, greedy, divisor, *sure = row
        logits = draft_logits(low, models, h, features) / divisor
        raw = raw_confidence(low["confidence"], h, e)
        log_p = _wide_product(state, models.head_rows) / divisor - sure[0][..., None]
        return _terms(logits, raw, log_p, Judged(*sure), label, greedy, models, objective)

    def rows_at_once(vocab: int) -> int:
        return min(len(h), max(1, MOST_LOGITS // (blocks.label[0].size * vocab)))

    sure: Judged = jax.lax.map(judged, (states, divisor), batch_size=rows_at_once(len(models.target.head)))
    inputs = (h, e, features, states, blocks.label, temperature == 0, divisor, *jax.lax.stop_gradient(sure))
    found: Terms = jax.lax.map(of_row, inputs, batch_size=rows_at_once(len(models.ids)))
    return found


def draft_logits(low: Params, models: Models, h: jax.Array, features: jax.Array) -> jax.Array:
    """Shapes: h [..., D], features [..., r] -> float32 [..., C]."""
    return _wide_product(h, models.head_rows) + _wide_product(features, low["markov"]["w2"])


def _wide_product(x: jax.Array, weight: jax.Array) -> jax.Array:
    """x times a weight [out, in], in float32: bfloat16 would tie logits."""
    return jnp.einsum("...d,od->...o", x, weight, preferred_element_type=jnp.float32)


def _terms(
    logits: jax.Array,
    raw: jax.Array,
    log_p: jax.Array,
    sure: Judged,
    label: jax.Array,
    greedy: jax.Array,
    models: Models,
    objective: Objective,
) -> Terms:
    """Logits and log_p (the target's) are at the temperature of comparison.

    Shapes: logits [N, K, C], raw [N, K], log_p [N, K, C], label int32 [N, K], greedy bool [].
    """
    log_q = jax.nn.log_softmax(logits)
    q, p = jnp.exp(log_q), jnp.exp(log_p)
    # What the target gives to tokens that cannot be drafted is at a distance, too.
    distance = jnp.sum(jnp.abs(q - p), -1) + jnp.maximum(1 - jnp.sum(p, -1), 0)
    divergence = jnp.sum(p * (log_p - log_q), -1)
    row = models.draft_of[label]
    cross = -jnp.take_along_axis(log_q, jnp.maximum(row, 0)[..., None], -1)[..., 0] * (row >= 0)
    agrees = models.ids[jnp.argmax(logits, -1)] == sure.likeliest
    kept = jnp.exp(log_kept(log_p, log_q, sure.likely))
    match objective.sure_of:
        case SureOf.OVERLAP:
            lands = 1 - distance / 2
        case SureOf.GREEDY:
            lands = agrees.astype(jnp.float32)
        case SureOf.KEPT:
            lands = jnp.where(greedy, agrees, kept)
    lands = jax.lax.stop_gradient(jnp.clip(lands, 0, 1))
    confidence = jax.nn.softplus(raw) - lands * raw
    return Terms(cross, distance, divergence, 1 - kept, confidence, agrees)


def _mean(value: jax.Array, weight: jax.Array) -> jax.Array:
    return jnp.sum(value * weight) / jnp.maximum(jnp.sum(weight), 1)
