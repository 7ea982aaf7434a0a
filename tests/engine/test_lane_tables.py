from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

from tfjax.engine.api import Sampling
from tfjax.engine.compiles import compiles
from tfjax.engine.lane_tables import empty_tables, needs_tables, set_history, set_tables
from tfjax.kernels.draw import LaneTables


def test_history_is_set_at_a_lanes_first_positions_and_nowhere_else() -> None:
    tables = empty_tables(3, 11, 8)
    tables = set_tables(tables, 1, Sampling(logit_bias=((4, 2.0),)), frozenset({5}))
    tables = set_history(tables, 0, (7, 7))
    tables = set_history(tables, 1, (3, 1, 2))
    assert_array_equal(tables.history, [[7, 7, 0, 0, 0, 0, 0, 0], [3, 1, 2, 0, 0, 0, 0, 0], [0] * 8])
    assert tables.bias[1, 4] == 2.0
    assert tables.stops[1, 0] == 5


def test_lengths_share_one_program() -> None:
    tables: LaneTables = set_history(empty_tables(2, 5, 16), 0, (1,))
    before = compiles()
    for size in (2, 7, 16):
        tables = set_history(tables, 1, tuple(range(size)))
    assert compiles() == before
    assert_array_equal(tables.history[1], np.arange(16))


def test_only_bias_and_banned_stops_need_tables() -> None:
    assert not needs_tables(Sampling(repetition_penalty=1.3))
    assert needs_tables(Sampling(min_tokens=1))
    assert needs_tables(Sampling(logit_bias=((1, 1.0),)))
