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
