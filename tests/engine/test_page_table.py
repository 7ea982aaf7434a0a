from __future__ import annotations

import numpy as np
import pytest

from tfjax.engine.page_table import PageTable
from tfjax.lanes.stream import Request, Stream, Times


def stream_with(pages: list[int], lane: int = 1) -> Stream:
    return Stream(Request("r", (1,), 5), 6, Times(0.0), lane=lane, pages=pages)


def test_pages_move_by_one_and_what_is_left_is_scratch() -> None:
    table = PageTable(lanes=2, pages_per_lane=4)
    table.sync(stream_with([3, 0, 5]))
    table.sync(stream_with([7]))
    table.sync(stream_with([2], lane=0))
    assert np.asarray(table.on_device).tolist() == [[3, 0, 0, 0], [8, 0, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("pages", "same"),
    [([3, 0, 5], 3), ([3, 0, 5, 9], 3), ([3, 0], 2), ([3, 6, 5], 1), ([3, 0, 6, 7], 2), ([4, 0, 5], 0), ([], 0)],
)
def test_a_sync_says_how_many_pages_stayed(pages: list[int], same: int) -> None:
    table = PageTable(lanes=2, pages_per_lane=4)
    assert table.sync(stream_with([3, 0, 5])) == 0
    assert table.sync(stream_with(pages)) == same
    assert table.sync(stream_with(pages)) == len(pages)


def test_only_a_change_makes_a_new_table() -> None:
    table, stream = PageTable(lanes=2, pages_per_lane=4), stream_with([3, 0])
    table.sync(stream)
    before = table.on_device
    table.sync(stream)
    assert table.on_device is before
    stream.pages.append(1)
    table.sync(stream)
    assert table.on_device is not before


def test_a_cleared_lane_is_scratch_until_its_next_stream() -> None:
    table, stream = PageTable(lanes=2, pages_per_lane=4), stream_with([3])
    table.sync(stream)
    table.clear(1)
    assert table.sync(stream) == 0
    assert np.asarray(table.on_device)[1].tolist() == [4, 0, 0, 0]
