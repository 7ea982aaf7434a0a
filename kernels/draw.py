"""From logits to the drawn token: every row by its own rules, the same bits whatever rows are beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfjax.kernels.filters import keep_mask
from tfjax.kernels.keyed_draw import LARGEST, NOT_FINITE, DrawKeys, keyed_draw, scaled_below_peak
from tfjax.kernels.reduce import tree_sum
from tfjax.kernels.routes import Route

__all__ = ["NOT_FINITE", "TOP_LOGPROBS", "DrawRules", "Drawn", "LaneTables", "draw", "draw_among", "draw_as_read"]

TOP_LOGPROBS = 20
"""Alternatives returned with a row's logprobs."""

ABSENT = -1e30
"""Logit of a token that a reduced vocabulary lacks, while penalties and bans are worked out over all tokens."""


_token: Callable[..., jax.Array] = jax.jit(keyed_draw, static_argnames=("route",))
"""Both ways of a condition draw; as a function of its own that is lowered and compiled once."""


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


def filtered(logits: jax.Array, rules: DrawRules) -> jax.Array:
    """-inf for the tokens that a sampled row's filters leave out; the largest logit stays. Shape: [R, V]."""
    scaled = scaled_below_peak(logits, rules.temperature)
    kept = keep_mask(scaled, rules.top_k, rules.top_p, rules.min_p)
    return jnp.where(kept, logits, -jnp.inf)


def raw_logprobs(logits: jax.Array, token: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Log probabilities under the raw distribution. Shapes: [R, V], [R] -> [R], int32 [R, TOP], float32 [R, TOP]."""
    peak = jnp.max(logits, -1, keepdims=True)
    weight = jax.lax.optimization_barrier(jnp.exp(logits - peak))
    # XLA on GPU would repeat the sum's last additions in every column, and take half a minute to compile that.
    total = jax.lax.optimization_barrier(tree_sum(weight))
    logprobs = logits - peak - jnp.log(total)
    top, ids = jax.lax.top_k(logprobs, TOP_LOGPROBS)
    own = jnp.take_along_axis(logprobs, jnp.maximum(token, 0)[:, None], -1)[:, 0]
    return own, ids.astype(jnp.int32), top


def _adjusts(rules: DrawRules) -> jax.Array:
    """Whether `adjust` does anything to any row. Shape: bool []."""
    changed = rules.biased | rules.stops_banned
    changed |= (rules.presence != 0) | (rules.frequency != 0) | (rules.repetition != 1)
    return jnp.any(changed)


def _filters(rules: DrawRules) -> jax.Array:
    """Whether `filtered` does anything to any row. Shape: bool []."""
    asked = (rules.top_k > 0) | (rules.top_p < 1) | (rules.min_p > 0)
    return jnp.any(asked & (rules.temperature > 0))


def _keys(rules: DrawRules, *, masked: bool) -> DrawKeys:
    return DrawKeys(rules.temperature, rules.seed, rules.position, jnp.full(rules.position.shape, masked))


def _masked(logits: jax.Array, adjusted: jax.Array, rules: DrawRules) -> jax.Array:
    """Adjusted logits, -inf where filtered, and NaN where a row's raw logits are not finite."""
    masked = jax.lax.cond(_filters(rules), lambda x: filtered(x, rules), lambda x: x, adjusted)
    sound = jnp.all(jnp.isfinite(logits), -1, keepdims=True)
    # A penalty may overflow, which is no fault of the model.
    return jnp.where(sound, jnp.minimum(masked, LARGEST), jnp.nan)


def draw(
    logits: jax.Array, rules: DrawRules, tables: LaneTables, lane: jax.Array, *, route: Route = Route.REFERENCE
) -> Drawn:
    """Draw one token per row.

    A step that no row asks for is skipped as a whole; it would leave the other rows' bits as they are. Where no row
    asks for more than a token of its logits, one condition skips all steps.

    Shapes: logits float32 [R, V], lane int32 [R].

    Raises:
        Unsupported: where the device route does not take the vocabulary.
    """
    return draw_as_read(logits, lambda known: known, (rules, lane), tables, route=route)


def draw_as_read[Source](
    logits: jax.Array,
    read: Callable[[Source], tuple[DrawRules, jax.Array]],
    source: Source,
    tables: LaneTables,
    *,
    route: Route = Route.REFERENCE,
) -> Drawn:
    """`draw` by the rules and lanes that `read` finds in `source`.

    Both ways of the condition read for themselves: what crosses a condition has to lie in memory, so that rules which
    were read before it would be a small kernel each.
    """

    def plain(x: jax.Array, source: Source) -> Drawn:
        rules, _ = read(source)
        return Drawn(_token(x, _keys(rules, masked=False), jnp.int32(len(x)), route=route), *_no_logprobs(len(x)))

    def every_step(x: jax.Array, source: Source) -> Drawn:
        rules, lane = read(source)
        adjusted = jax.lax.cond(_adjusts(rules), lambda x: adjust(x, rules, tables, lane), lambda x: x, x)
        masked = _masked(x, adjusted, rules)
        token = _token(masked, _keys(rules, masked=True), jnp.int32(len(x)), route=route)
        wanted = jnp.any(rules.logprobs)
        return Drawn(token, *jax.lax.cond(wanted, lambda x: raw_logprobs(x, token), lambda x: _no_logprobs(len(x)), x))

    rules, _ = read(source)
    asked = _adjusts(rules) | _filters(rules) | jnp.any(rules.logprobs)
    drawn: Drawn = jax.lax.cond(asked, every_step, plain, logits, source)
    return drawn


def _no_logprobs(rows: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    top = (rows, TOP_LOGPROBS)
    return jnp.zeros(rows, jnp.float32), jnp.zeros(top, jnp.int32), jnp.zeros(top, jnp.float32)


def draw_among(
    logits: jax.Array,
    ids: jax.Array,
    rules: DrawRules,
    tables: LaneTables,
    lane: jax.Array,
    *,
    route: Route = Route.REFERENCE,
) -> jax.Array:
    """Draw one token per row where only some tokens have a logit; the others cannot be drawn.

    Over all tokens the draws are those of `draw`.

    Shapes: logits float32 [R, C], ids int32 [C] (each column's token), lane int32 [R] -> token int32 [R].

    Raises:
        Unsupported: where the device route does not take as many columns.
    """

    def over_all(columns: jax.Array) -> jax.Array:
        every = jnp.full((columns.shape[0], tables.bias.shape[1]), ABSENT, columns.dtype).at[:, ids].set(columns)
        return adjust(every, rules, tables, lane)[:, ids]

    def every_step(x: jax.Array) -> jax.Array:
        adjusted = jax.lax.cond(_adjusts(rules), over_all, lambda x: x, x)
        return _token(_masked(x, adjusted, rules), _keys(rules, masked=True), jnp.int32(len(x)), ids, route=route)

    def plain(x: jax.Array) -> jax.Array:
        return _token(x, _keys(rules, masked=False), jnp.int32(len(x)), ids, route=route)

    column = jax.lax.cond(_adjusts(rules) | _filters(rules), every_step, plain, logits)
    return jnp.where(column == NOT_FINITE, NOT_FINITE, ids[column])
