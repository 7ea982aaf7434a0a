"""Which cache page holds which positions of every lane, on the host and on the device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.lanes.stream import Stream


class PageTable:
    """One row a lane; the last row is the scratch lane, whose pages are all page 0.

    Attributes:
        on_device: int32 [lanes + 1, pages], the table that forwards read.
    """

    def __init__(self, lanes: int, pages_per_lane: int) -> None:
        self._pages: NDArray[np.int32] = np.zeros((lanes + 1, pages_per_lane), np.int32)
        self._known: list[list[int]] = [[] for _ in range(lanes + 1)]
        self.on_device: jax.Array = jnp.array(self._pages)

    def clear(self, lane: int) -> None:
        """Forget a lane's pages, from its next stream on."""
        self._pages[lane] = 0
        self._known[lane] = []

    def held(self, lane: int) -> Sequence[int]:
        """The lane's pages by the loop's ids, as of its last `sync`."""
        return self._known[lane]

    def sync(self, stream: Stream) -> int:
        """Copy the stream's pages into the table if they changed. Page 0 is scratch, so the loop's ids move by one.

        Returns how many of its pages, from the first on, are those that the lane had at the last call.
        """
        lane = stream.lane
        known = self._known[lane]
        if stream.pages == known:
            return len(known)
        self._known[lane] = list(stream.pages)
        self._pages[lane] = 0
        self._pages[lane, : len(stream.pages)] = np.add(stream.pages, 1)
        self.on_device = jnp.array(self._pages)  # a copy: the host goes on writing
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known, stream.pages, strict=False)))
