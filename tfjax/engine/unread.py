"""What forwards and holds leave on the device, so that more can be queued behind them before the host reads a draw."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tfjax.engine.rows_buffer import PLACE, unpack

MOST_HELD = 32
"""Drafts of a stream that can wait on the device."""

FIRST, HELD = -1, -2
"""Stand for tokens that the host does not know: the draw after what the lane's latest window kept, and the first draft
that waits for the lane; the next drafts are told by the numbers below."""

NO_TOKEN = int(np.iinfo(np.int32).min)
"""What a draft that was not made becomes; no draw is like it."""


class Unread(NamedTuple):
    """By lane; the last one is the scratch lane.

    Attributes:
        kept: int32 [lanes + 1], drafts that the lane's latest window kept.
        token: int32 [lanes + 1], drawn after them.
        drafts: int32 [lanes + 1, MOST_HELD] of the lane's latest hold, negative where none was made.
    """

    kept: jax.Array
    token: jax.Array
    drafts: jax.Array


def nothing_unread(lanes: int) -> Unread:
    """Of so many lanes, the scratch lane among them."""
    per_lane = jnp.zeros(lanes, jnp.int32)
    return Unread(per_lane, jnp.zeros_like(per_lane), jnp.full((lanes, MOST_HELD), NO_TOKEN))


def resolved(unread: Unread, token: jax.Array, matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Tokens and matrix of a forward, rows where they really stand.

    Windows behind unread ones are told as though those kept no draft, and by the field `behind`.

    Shapes: token int32 [rows], matrix int32 [fields, rows] (see rows_buffer).
    """
    field = unpack(matrix)
    lane, place = field["lane"], jnp.clip(HELD - token, 0, MOST_HELD - 1)
    draft = unread.drafts[lane, place]
    held = jnp.where(draft < 0, NO_TOKEN, draft)
    known = jnp.where(token == FIRST, jnp.maximum(unread.token[lane], 0), jnp.where(token <= HELD, held, token))
    rows = field["behind"] * unread.kept[lane]
    tiles = field["tile_behind"] * unread.kept[field["tile_lane"]]
    return known, matrix.at[PLACE["position"]].add(rows).at[PLACE["tile_last"]].add(tiles)


def asked(unread: Unread, matrix: jax.Array, token: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same of what a hold is asked: its matrix, and the pending token of every stream.

    Shapes: matrix int32 [fields, S], token int32 [S].
    """
    field = unpack(matrix)
    lane, behind = field["lane"], field["behind"]
    moved = matrix.at[PLACE["position"]].add(behind * unread.kept[lane])
    return moved, jnp.where(behind != 0, jnp.maximum(unread.token[lane], 0), token)


def landed(unread: Unread, token: jax.Array, draw: jax.Array, lane: jax.Array) -> Unread:
    """Where the windows of a forward end: a draft is kept where it, and each before it, is what was drawn in its place.

    Lanes without a row keep what they had. Every row is drawn from. Shapes: int32 [rows] each.
    """
    rows = len(lane)
    row, number = jnp.arange(rows), jnp.arange(len(unread.kept))
    is_end = jnp.append(lane[1:] != lane[:-1], True) | jnp.append(token[1:] != draw[:-1], True)
    own = lane[None] == number[:, None]
    first = jnp.min(jnp.where(own, row, rows), 1)
    end = jnp.min(jnp.where(own & is_end, row, rows), 1)
    kept = jnp.where(first < rows, end - first, unread.kept)
    return unread._replace(kept=kept, token=jnp.where(first < rows, draw[jnp.minimum(end, rows - 1)], unread.token))


def waiting(unread: Unread, lane: jax.Array, drafts: jax.Array) -> jax.Array:
    """`unread.drafts` with those of a hold. Shapes: lane int32 [S], drafts int32 [S, depth]."""
    return unread.drafts.at[lane, : drafts.shape[1]].set(drafts)
