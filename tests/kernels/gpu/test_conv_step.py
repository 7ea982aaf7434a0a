"""What the interpreter cannot show, as it starts rows in order: which of two rows has a place of the ring."""

from __future__ import annotations

import numpy as np
import pytest

from tfjax.kernels.gpu.conv_step import last_of_its_place
from tfjax.kernels.short_conv import RING, own_places


@pytest.mark.parametrize("rows", [RING, RING + 1, 2 * RING + 9])
def test_the_last_row_of_a_place_has_it(rows: int) -> None:
    """Lane 0 ends 5 rows before the window does, and the other lane's positions go on from its own."""
    lane = (np.arange(rows) >= rows - 5).astype(np.int32)
    position = np.arange(rows, dtype=np.int32) + 7
    ring, tail = own_places(lane, position, 2)
    for row in range(rows):
        if tail[row] == 2:
            assert bool(last_of_its_place(np.int32(row), lane, position)) == (ring[row] < RING), row
