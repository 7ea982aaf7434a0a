"""Rows behind windows whose draws the host has not read: only the device knows where these end."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tfjax.engine.rows_buffer import FIELDS, LANE_AND_POSITION, PLACE
from tfjax.engine.shapes import int32


class Landed(NamedTuple):
    """What windows of a forward keep, by lane. Shapes: int32 [lanes + 1], 0 where a lane had no window.

    Attributes:
        drafts: that were kept.
        token: drawn after them, the first of the lane's next window.
    """

    drafts: jax.Array
    token: jax.Array


class Moved(NamedTuple):
    """Rows of a forward where they really stand.

    Attributes:
        token: int32 [rows].
        matrix: int32 [fields, rows] (see rows_buffer).
        places: int32 [2, rows], lane and position of each row.
    """

    token: jax.Array
    matrix: jax.Array
    places: jax.Array


class Landing:
    """Compiled programs for forwards of some row counts, and for what holds of some shapes are told."""

    def __init__(self, widths: Sequence[int], lanes: int, told: Sequence[tuple[int, int]]):
        """Compile them.

        Args:
            widths: row counts of the forwards.
            lanes: those of the target, without the scratch lane, which comes after them.
            told: shapes of what holds are told: fields of a forward, then the pending token and others; by streams.
        """
        per_lane: Any = int32(lanes + 1)
        landed = Landed(per_lane, per_lane)
        self._compiled: dict[tuple[Any, ...], Any] = {}
        for rows in widths:
            self._compiled["land", rows] = _compiled(partial(_land, lanes), *[int32(rows)] * 3)
            self._compiled["move", rows] = _compiled(_move, landed, int32(rows), int32(len(FIELDS), rows))
        for shape in told:
            self._compiled["move asks", shape] = _compiled(_move_asks, landed, int32(*shape))

    def land(self, token: Any, draw: jax.Array, lane: Any) -> Landed:
        """Where the windows of a forward end. Shapes: int32 [rows] each."""
        landed: Landed = self._compiled["land", len(lane)](token, draw, lane)
        return landed

    def move(self, landed: Landed, token: Any, matrix: Any) -> Moved:
        """A forward's rows, of which windows whose first token is negative begin behind those that landed.

        Their positions are given as though no draft was kept.
        """
        moved: Moved = self._compiled["move", matrix.shape[1]](landed, token, matrix)
        return moved

    def move_asks(self, landed: Landed, told: Any) -> jax.Array:
        """The same of what a hold is told, by its pending tokens. Shape: int32 [fields + asked, streams]."""
        moved: jax.Array = self._compiled["move asks", told.shape](landed, told)
        return moved


def _land(lanes: int, token: jax.Array, draw: jax.Array, lane: jax.Array) -> Landed:
    """A draft is kept where it is what was drawn in its place, and so are all before it in its window."""
    row = jnp.arange(len(lane))
    is_last = jnp.append(lane[1:] != lane[:-1], True)
    is_missed = is_last | jnp.append(token[1:] != draw[:-1], True)
    last_kept = jax.lax.cummin(jnp.where(is_missed, row, len(lane)), reverse=True)
    at = jnp.where(_is_first(lane) & (lane != lanes), lane, lanes + 1)
    nothing = jnp.zeros(lanes + 1, jnp.int32)
    drafts = nothing.at[at].set(last_kept - row, mode="drop")
    return Landed(drafts, nothing.at[at].set(draw[last_kept], mode="drop"))


def _move(landed: Landed, token: jax.Array, matrix: jax.Array) -> Moved:
    """Shapes: token int32 [rows], matrix int32 [fields, rows]."""
    lane = matrix[PLACE["lane"]]
    is_behind = _is_first(lane) & (token < 0)
    drafts = jnp.where(jnp.zeros(len(landed.drafts), bool).at[lane].max(is_behind), landed.drafts, 0)
    is_tile = jnp.arange(len(lane)) < matrix[PLACE["tile_count"], 0]
    beyond = jnp.where(is_tile, drafts[matrix[PLACE["tile_lane"]]], 0)
    moved = matrix.at[PLACE["position"]].add(drafts[lane]).at[PLACE["tile_last"]].add(beyond)
    first = jnp.where(is_behind, jnp.maximum(landed.token[lane], 0), token)
    return Moved(first, moved, moved[LANE_AND_POSITION])


def _move_asks(landed: Landed, told: jax.Array) -> jax.Array:
    """Shape: int32 [fields + asked, streams]; the first asked is the pending token."""
    lane, pending = told[PLACE["lane"]], told[len(FIELDS)]
    is_behind = pending < 0
    moved = told.at[PLACE["position"]].add(jnp.where(is_behind, landed.drafts[lane], 0))
    return moved.at[len(FIELDS)].set(jnp.where(is_behind, jnp.maximum(landed.token[lane], 0), pending))


def _is_first(lane: jax.Array) -> jax.Array:
    """Whether each row is the first of its window: a lane has one in a forward."""
    return jnp.append(True, lane[1:] != lane[:-1])


def _compiled(function: Any, *shapes: Any) -> Any:
    return jax.jit(function).lower(*shapes).compile()
