"""Drafts that stay on the device: they are put among a forward's tokens there, and the host need not wait for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.lanes.stream import Stream
from tfjax.lanes.window import Window

HeldDrafts = Callable[[Stream], tuple[jax.Array, int] | None]
"""Where a stream's waiting drafts lie, if there are any: int32 [S, depth] of the hold that made them (a negative number
for none), and the stream's row of it."""


class HeldTokens:
    """Makes the tokens of forwards of some row counts from those of the host and drafts of one shape."""

    def __init__(self, held: HeldDrafts, widths: Sequence[int], shape: tuple[int, int]):
        self._held = held
        self._compiled: dict[int, Any] = {}
        for width in widths:
            tokens = jax.ShapeDtypeStruct((width,), jnp.int32)
            drafts = jax.ShapeDtypeStruct(shape, jnp.int32)
            self._compiled[width] = jax.jit(_put).lower(tokens, drafts, tokens).compile()

    def put(self, token: NDArray[np.int32], windows: Sequence[Window]) -> jax.Array:
        """Tokens of a forward over these windows. Shape: int32 [rows], those of the host.

        Where a window's drafts are not there its pending token stands in; the target rejects it.
        """
        places: dict[int, tuple[jax.Array, list[int]]] = {}
        row = 0
        for window in windows:
            waiting = self._held(window.stream) if window.held else None
            if waiting is None:
                token[row + 1 : row + 1 + window.held] = window.pending or 0
            else:
                drafts, index = waiting
                _, place = places.setdefault(id(drafts), (drafts, [-1] * len(token)))
                first = index * drafts.shape[1]
                place[row + 1 : row + 1 + window.held] = range(first, first + window.held)
            row += window.rows
        filled: Any = token
        for drafts, place in places.values():
            filled = self._compiled[len(token)](filled, drafts, np.array(place, np.int32))
        on_device: jax.Array = filled
        return on_device


def _put(token: jax.Array, drafts: jax.Array, place: jax.Array) -> jax.Array:
    """Take a draft wherever there is a place. Shapes: int32 [rows], [S, depth], [rows] -> [rows]."""
    return jnp.where(place >= 0, drafts.reshape(-1)[jnp.maximum(place, 0)], token)
