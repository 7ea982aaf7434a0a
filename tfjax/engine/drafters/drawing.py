"""How a drafter on the device draws: as the target will, among the tokens that its head knows."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfjax.kernels.draw import NOT_FINITE, DrawRules, LaneTables, draw_among
from tfjax.kernels.routes import Route


class Drafts(NamedTuple):
    """What a hold made. Shapes: [S, depth].

    Attributes:
        token: int32, NOT_FINITE where none was made.
        confidence: float32, how sure the drafter is of each token where those before it land.
    """

    token: jax.Array
    confidence: jax.Array

    def with_draft(self, place: jax.Array | int, token: jax.Array, confidence: jax.Array) -> Drafts:
        """With one more of every stream. Shapes: [S] each."""
        return Drafts(self.token.at[:, place].set(token), self.confidence.at[:, place].set(confidence))


def no_drafts(streams: int, depth: int) -> Drafts:
    """Room for drafts, none of them made."""
    shape = (streams, depth)
    return Drafts(jnp.full(shape, NOT_FINITE, jnp.int32), jnp.zeros(shape, jnp.float32))


def draw_draft(
    logits: jax.Array,
    ids: jax.Array,
    rules: DrawRules,
    tables: LaneTables,
    lane: jax.Array,
    *,
    route: Route = Route.REFERENCE,
) -> tuple[jax.Array, jax.Array]:
    """One draft of every stream, and its probability at the stream's temperature (at 1 where it is greedy).

    Shapes: logits float32 [S, C], ids int32 [C] (each column's token), lane int32 [S] -> int32 [S], float32 [S].

    Raises:
        Unsupported: where the device route does not take as many columns.
    """
    token = draw_among(logits, ids, rules, tables, lane, route=route)
    scaled = logits.astype(jnp.float32) / jnp.where(rules.temperature > 0, rules.temperature, 1)[:, None]
    return token, jnp.sum(jax.nn.softmax(scaled) * (ids == token[:, None]), -1)
