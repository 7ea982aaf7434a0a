"""Drafts that stay on the device: they are put among a forward's tokens there, and the host need not wait for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.engine.shapes import int32
from tfjax.lanes.stream import Stream
from tfjax.lanes.window import Window

HeldDrafts = Callable[[Stream], tuple[jax.Array, int] | None]
"""Where a stream's waiting drafts lie, if there are any: int32 [S, depth] of the hold that made them (a negative number
for none), and the stream's row of it."""

NO_PLACE = int(np.iinfo(np.int32).min)
"""Stands for a token that is none, or not known here, and is further from 0 than the place of any draft."""


class HeldTokens:
    """Makes the tokens of forwards of some row counts from those of the host and drafts of one shape."""

    def __init__(self, held: HeldDrafts, widths: Sequence[int], shape: tuple[int, int]):
        self._held = held
        self._compiled: dict[int, Any] = {}
        for width in widths:
            self._compiled[width] = jax.jit(_put).lower(int32(width), int32(*shape)).compile()

    def put(self, token: NDArray[np.int32], windows: Sequence[Window]) -> jax.Array:
        """Tokens of a forward over these windows. Shape: int32 [rows], those of the host.

        Where a window's drafts are not there its pending token stands in, or token 0 where that lies on the device.
        """
        holds: dict[int, tuple[int, jax.Array]] = {}
        row = 0
        for window in windows:
            waiting = self._held(window.stream) if window.held else None
            if waiting is None:
                token[row + 1 : row + 1 + window.held] = window.pending or 0
            else:
                drafts, index = waiting
                number, _ = holds.setdefault(id(drafts), (len(holds), drafts))
                first = -1 - (number * drafts.shape[0] + index) * drafts.shape[1]
                token[row + 1 : row + 1 + window.held] = range(first, first - window.held, -1)
            row += window.rows
        filled: Any = token
        for _, drafts in holds.values():
            filled = self._compiled[len(token)](filled, drafts)
        on_device: jax.Array = filled
        return on_device


def _put(token: jax.Array, drafts: jax.Array) -> jax.Array:
    """Take drafts where negative tokens tell their places: -1 is the first of this hold, the next hold's come after it.

    Those places are told as the next hold's own then. Where a draft is none there is no place in any hold.

    Shapes: int32 [rows], [S, depth] -> [rows].
    """
    place, size = -1 - token, drafts.size
    draft = drafts.reshape(-1)[jnp.clip(place, 0, size - 1)]
    taken = jnp.where(draft < 0, NO_PLACE, draft)
    return jnp.where(place < 0, token, jnp.where(place < size, taken, token + size))
