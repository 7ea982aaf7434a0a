"""Watches the target's cache: after every round its committed rows must have the bits of a serial run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfjax.engine.cached_rows import rows_by_position
from tfjax.engine.target import TargetBackend
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.short_conv import RING
from tfjax.lanes.window import Window

RECENT = RING // 2
"""Positions of a convolution that are compared: rejected rows may stand where older ones were."""


class WatchedState:
    """A target that takes a hash of each stream's committed rows after every round, by reply and length.

    Attributes:
        compared: hashes that were held against the serial run's.
        different: where they were not equal.
    """

    def __init__(self, target: TargetBackend, longest: int):
        self._target = target
        self._pages = -(-longest // PAGE_ROWS)
        self._serial: dict[tuple[str, int], str] = {}
        self.is_serial = True
        self.compared = 0
        self.different: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def keep(self, windows: Sequence[Window], kept: Sequence[int]) -> None:
        """Commit, then look."""
        self._target.keep(windows, kept)
        for window, count in zip(windows, kept, strict=True):
            if count:
                self._look(window, window.position + count)

    def _look(self, window: Window, stop: int) -> None:
        stream = window.stream
        key = stream.request.id.rsplit("/", 1)[0], stop
        found = self._hash(stream.pages, stream.lane, stop)
        if self.is_serial:
            self._serial[key] = found
            return
        wanted = self._serial.get(key)
        if wanted is None:
            return  # further than the serial run went
        self.compared += 1
        if found != wanted:
            self.different.append(f"{key[0]}: the cache of {stop} positions after a window of {window.rows} rows")

    def _hash(self, pages: Sequence[int], lane: int, stop: int) -> str:
        """Page 0 is scratch on the device, so the loop's ids move by one."""
        numbers = np.zeros(self._pages, np.int32)
        used = [page + 1 for page in pages[: self._pages]]
        numbers[: len(used)] = used
        digest = hashlib.sha256()
        for name, rows in rows_by_position(self._target.state.cache, numbers.tolist(), lane, stop).items():
            digest.update(rows[max(0, stop - RECENT) :] if name.endswith("inputs") else rows)
        return digest.hexdigest()
