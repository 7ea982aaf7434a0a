from __future__ import annotations

import numpy as np

from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles
from tfjax.models.rows import Rows


def test_a_row_lies_in_its_lanes_page() -> None:
    lane, position = np.array([0, 1, 1, 2]), np.array([0, PAGE_ROWS - 1, PAGE_ROWS, 2 * PAGE_ROWS + 5])
    table = np.array([[4, 0, 0], [7, 2, 0], [1, 3, 9]])
    rows = Rows(np.zeros(4), lane, position, Tiles(*[np.int32(0)] * 4), table)
    assert rows.page.tolist() == [4, 7, 2, 9]
    assert rows.slot.tolist() == [0, PAGE_ROWS - 1, 0, 5]


def test_rows_of_the_scratch_lane_do_not_count() -> None:
    table = np.zeros((3, 2), np.int32)
    for used in range(5):
        lane = np.array([0, 1, 0, 1][:used] + [2] * (4 - used), np.int32)
        assert Rows(np.zeros(4), lane, np.zeros(4), Tiles(*[np.int32(0)] * 4), table).used == used
