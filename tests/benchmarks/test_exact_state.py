from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.exact_state import WatchedState
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.short_conv import RING
from tfjax.models.rows import ConvCache, LayerCache

PAGES, LANES, LANE = 6, 3, 1


class Target:
    """A cache on the host, filled by position."""

    def __init__(self) -> None:
        self.keys = np.zeros((PAGES, 1, PAGE_ROWS, 2), np.float32)
        self.ring = np.zeros((LANES, RING, 2), np.float32)
        self.tails = np.zeros((PAGES, 2, 2), np.float32)
        self.kept: list[int] = []

    @property
    def state(self) -> Any:
        keys = jnp.asarray(self.keys)
        cache = (LayerCache(keys, keys + 1), ConvCache(jnp.asarray(self.ring), jnp.asarray(self.tails)))
        return SimpleNamespace(cache=cache)

    def keep(self, windows: Any, kept: list[int]) -> None:
        self.kept += kept

    def compute(self, pages: list[int], lane: int, start: int, stop: int) -> None:
        """Rows of these positions, whatever becomes of them."""
        for position in range(start, stop):
            self.keys[pages[position // PAGE_ROWS] + 1, 0, position % PAGE_ROWS] = position + 1
            tail = position % PAGE_ROWS - (PAGE_ROWS - 2)
            if tail < 0:
                self.ring[lane, position % RING] = position + 1
            else:
                self.tails[pages[position // PAGE_ROWS] + 1, tail] = position + 1


def window(pages: list[int], lane: int, position: int, rows: int, name: str = "a") -> Any:
    stream = SimpleNamespace(pages=pages, lane=lane, request=SimpleNamespace(id=f"{name}/{lane}"))
    return SimpleNamespace(stream=stream, position=position, rows=rows)


@pytest.fixture
def serial() -> tuple[WatchedState, Target]:
    """Positions 0 to 139 of a reply, each looked at after a window of its own."""
    target = Target()
    watched: Any = WatchedState(target, 140)  # type: ignore[arg-type]
    for position in range(140):
        target.compute([4, 0, 2], 0, position, position + 1)
        watched.keep([window([4, 0, 2], 0, position, 1)], [1])
    watched.is_serial = False
    return watched, target


def test_the_same_rows_elsewhere_are_equal_and_rejected_ones_do_not_matter(serial: tuple[WatchedState, Target]) -> None:
    watched, target = serial
    for position in range(0, 130, 5):
        target.compute([1, 3, 4], LANE, position, position + 9)
        watched.keep([window([1, 3, 4], LANE, position, 9)], [5])
    assert (watched.compared, watched.different) == (26, [])


@pytest.mark.parametrize("part", ["keys", "ring", "tails"])
def test_one_wrong_number_is_found(serial: tuple[WatchedState, Target], part: str) -> None:
    watched, target = serial
    target.compute([1, 3, 4], LANE, 0, 130)
    place = {"keys": (2, 0, 7), "ring": (LANE, 100), "tails": (4, 1)}[part]
    getattr(target, part)[place] += 1
    watched.keep([window([1, 3, 4], LANE, 120, 9)], [9])
    assert watched.compared == 1
    assert watched.different == ["a: the cache of 129 positions after a window of 9 rows"]


def test_what_was_dropped_or_went_further_is_not_compared(serial: tuple[WatchedState, Target]) -> None:
    watched, target = serial
    watched.keep([window([1, 3, 4], LANE, 50, 1)], [0])
    watched.keep([window([1, 3, 4], LANE, 139, 2)], [2])
    assert (watched.compared, target.kept[-2:]) == (0, [0, 2])


def test_replies_are_told_apart_by_their_name(serial: tuple[WatchedState, Target]) -> None:
    watched, target = serial
    target.compute([1, 3, 4], LANE, 0, 20)
    watched.keep([window([1, 3, 4], LANE, 0, 20, name="another")], [20])
    assert watched.compared == 0
