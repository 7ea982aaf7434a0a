"""From logits to the drawn token: every row by its own rules, the same bits whatever rows are beside it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfjax.kernels.filters import keep_mask
from tfjax.kernels.noise import gumbel
from tfjax.kernels.reduce import first_largest, tree_sum

TOP_LOGPROBS = 20
"""Alternatives returned with a row's logprobs."""

NOT_FINITE = -1
"""Drawn where a row's logits are not all finite."""


ABSENT = -1e30
"""Logit of a token that a reduced vocabulary lacks, while penalties and bans are worked out over all tokens."""


class DrawRules(NamedTuple):
    """How each row is drawn. Everything is per row [R] but `seed` [R, 2] (uint32 low and high word).

    Attributes:
        position: int32, absolute position that the drawn token will take.
        temperature: float32, 0 draws the largest logit.
        top_k, top_p, min_p: 0, 1 and 0 are off.
        presence, frequency: float32, subtracted by generated tokens; 0 is off.
        repetition: float32, divides prompt and generated tokens' logits; 1 is off.
        prompt_end: int32, position of the first generated token.
        biased: bool, the lane's logit bias applies.
        stops_banned: bool, the lane's stop tokens cannot be drawn yet.
        logprobs: bool, the row's log probabilities are wanted.
    """

    position: jax.Array
    temperature: jax.Array
    top_k: jax.Array
    top_p: jax.Array
    min_p: jax.Array
    seed: jax.Array
    presence: jax.Array
    frequency: jax.Array
    repetition: jax.Array
    prompt_end: jax.Array
    biased: jax.Array
    stops_banned: jax.Array
    logprobs: jax.Array


class LaneTables(NamedTuple):
    """What a lane's rows share. Stale entries of a lane's earlier stream are harmless: flags and positions guard them.

    Attributes:
        bias: float32 [lanes, V], added to the logits of biased rows.
        stops: int32 [lanes, stops], padded with V.
        history: int32 [lanes, positions], the token at each position.
    """

    bias: jax.Array
    stops: jax.Array
    history: jax.Array


class Drawn(NamedTuple):
    """Per row: token int32 [R], its raw logprob [R], the best alternatives' ids and logprobs [R, TOP_LOGPROBS]."""

    token: jax.Array
    logprob: jax.Array
    top_token: jax.Array
    top_logprob: jax.Array


def penalise(logits: jax.Array, rules: DrawRules, history: jax.Array) -> jax.Array:
    """Penalties over the row's own history: every token before the drawn position, drafts of its window included.

    Shapes: logits [R, V], history int32 [R, positions] -> [R, V].
    """
    rows, vocab = logits.shape
    at = jnp.arange(history.shape[1])[None]
    seen = at < rules.position[:, None]
    row = jnp.arange(rows)[:, None]

    def count(mask: jax.Array) -> jax.Array:
        token = jnp.where(mask, history, vocab)
        return jnp.zeros((rows, vocab), jnp.int32).at[row, token].add(1, mode="drop")

    generated = count(seen & (at >= rules.prompt_end[:, None]))
    repetition = rules.repetition[:, None]
    repeated = jnp.where(logits > 0, logits / repetition, logits * repetition)
    logits = jnp.where((count(seen) > 0) & (repetition != 1), repeated, logits)
    return (
        logits
        - rules.frequency[:, None] * generated.astype(jnp.float32)
        - rules.presence[:, None] * (generated > 0).astype(jnp.float32)
    )


def adjust(logits: jax.Array, rules: DrawRules, tables: LaneTables, lane: jax.Array) -> jax.Array:
    """Logit bias, then penalties, then the ban of stop tokens; rows that ask for none keep their bits."""
    row = jnp.arange(logits.shape[0])[:, None]
    adjusted = jnp.where(rules.biased[:, None], logits + tables.bias[lane], logits)
    punished = (rules.presence != 0) | (rules.frequency != 0) | (rules.repetition != 1)
    adjusted = jax.lax.cond(
        jnp.any(punished),
        lambda x: jnp.where(punished[:, None], penalise(x, rules, tables.history[lane]), x),
        lambda x: x,
        adjusted,
    )
    stops = jnp.where(rules.stops_banned[:, None], tables.stops[lane], logits.shape[1])
    allowed: jax.Array = adjusted.at[row, stops].set(-jnp.inf, mode="drop")
    return allowed


def _sampled(logits: jax.Array, rules: DrawRules, ids: jax.Array) -> jax.Array:
    """Column of the largest scaled logit plus its token's keyed noise, over the kept columns. Shape: int32 [R]."""
    # Below the peak all is negative, so that even the smallest temperature overflows to -inf and never to a tie.
    below = logits - jnp.max(logits, -1, keepdims=True)
    scaled = below / jnp.where(rules.temperature > 0, rules.temperature, 1)[:, None]
    filtered = (rules.top_k > 0) | (rules.top_p < 1) | (rules.min_p > 0)
    kept = jax.lax.cond(
        jnp.any(filtered & (rules.temperature > 0)),
        lambda x: keep_mask(x, rules.top_k, rules.top_p, rules.min_p),
        lambda x: jnp.ones_like(x, bool),
        scaled,
    )
    noisy = scaled + gumbel(rules.seed, rules.position, ids)
    return first_largest(jnp.where(kept, noisy, -jnp.inf))


def raw_logprobs(logits: jax.Array, token: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Log probabilities under the raw distribution. Shapes: [R, V], [R] -> [R], int32 [R, TOP], float32 [R, TOP]."""
    peak = jnp.max(logits, -1, keepdims=True)
    weight = jax.lax.optimization_barrier(jnp.exp(logits - peak))
    logprobs = logits - peak - jnp.log(tree_sum(weight))
    top, ids = jax.lax.top_k(logprobs, TOP_LOGPROBS)
    own = jnp.take_along_axis(logprobs, jnp.maximum(token, 0)[:, None], -1)[:, 0]
    return own, ids.astype(jnp.int32), top


def _changed(rules: DrawRules) -> jax.Array:
    """Whether `adjust` does anything to any row. Shape: bool []."""
    changed = rules.biased | rules.stops_banned
    changed |= (rules.presence != 0) | (rules.frequency != 0) | (rules.repetition != 1)
    return jnp.any(changed)


def _token(logits: jax.Array, adjusted: jax.Array, rules: DrawRules, ids: jax.Array) -> jax.Array:
    """The drawn column, or NOT_FINITE. Shapes: [R, V], [R, V], ids int32 [V] -> int32 [R]."""
    greedy = first_largest(adjusted)
    sampled = rules.temperature > 0
    column = jax.lax.cond(
        jnp.any(sampled),
        lambda x: jnp.where(sampled, _sampled(x, rules, ids), greedy),
        lambda x: greedy,
        adjusted,
    )
    return jnp.where(jnp.all(jnp.isfinite(logits), -1), column, NOT_FINITE)


def draw(logits: jax.Array, rules: DrawRules, tables: LaneTables, lane: jax.Array) -> Drawn:
    """Draw one token per row.

    A step that no row asks for is skipped as a whole; it would leave the other rows' bits as they are.

    Shapes: logits float32 [R, V], lane int32 [R].
    """
    rows = logits.shape[0]
    adjusted = jax.lax.cond(_changed(rules), lambda x: adjust(x, rules, tables, lane), lambda x: x, logits)
    token = _token(logits, adjusted, rules, jnp.arange(logits.shape[1]))
    nothing = (
        jnp.zeros(rows, jnp.float32),
        jnp.zeros((rows, TOP_LOGPROBS), jnp.int32),
        jnp.zeros((rows, TOP_LOGPROBS), jnp.float32),
    )
    own, ids, top = jax.lax.cond(jnp.any(rules.logprobs), lambda x: raw_logprobs(x, token), lambda x: nothing, logits)
    return Drawn(token, own, ids, top)


def draw_among(logits: jax.Array, ids: jax.Array, rules: DrawRules, tables: LaneTables, lane: jax.Array) -> jax.Array:
    """Draw one token per row where only some tokens have a logit; the others cannot be drawn.

    Over all tokens the draws are those of `draw`.

    Shapes: logits float32 [R, C], ids int32 [C] (each column's token), lane int32 [R] -> token int32 [R].
    """

    def over_all(columns: jax.Array) -> jax.Array:
        every = jnp.full((columns.shape[0], tables.bias.shape[1]), ABSENT, columns.dtype).at[:, ids].set(columns)
        return adjust(every, rules, tables, lane)[:, ids]

    adjusted = jax.lax.cond(_changed(rules), over_all, lambda x: x, logits)
    column = _token(logits, adjusted, rules, ids)
    return jnp.where(column == NOT_FINITE, NOT_FINITE, ids[column])
