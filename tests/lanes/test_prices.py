from __future__ import annotations

import pytest

from tfjax.lanes.prices import Prices

TABLE = {2: 30.0, 4: 39.0, 8: 47.0}


def prices() -> Prices:
    return Prices((2, 4, 8), TABLE)


@pytest.mark.parametrize(("rows", "ms"), [(1, 30), (2, 30), (3, 39), (4, 39), (5, 47), (8, 47)])
def test_rows_cost_the_width_that_they_pad_to(rows: int, ms: float) -> None:
    assert prices().forward_ms(rows) == ms


def test_before_any_round_the_overhead_is_8_ms() -> None:
    assert prices().of_round(1)(1, 0, 0) == 38.0


def test_overhead_is_a_moving_average_of_what_plain_rounds_took_beyond_the_table() -> None:
    learned = prices()
    learned.observe(1, 1, 40.0)
    assert learned.overhead_ms(1) == 10.0
    learned.observe(1, 1, 50.0)
    assert learned.overhead_ms(1) == pytest.approx(12.0)


def test_overhead_is_never_negative() -> None:
    learned = prices()
    learned.observe(1, 1, 3.0)
    assert learned.overhead_ms(1) == 0.0


def test_rounds_with_drafts_teach_nothing() -> None:
    learned = prices()
    learned.observe(2, 1, 99.0)
    assert learned.overhead_ms(1) == 8.0


def test_the_nearest_number_of_streams_stands_in() -> None:
    learned = prices()
    learned.observe(1, 1, 31.0)
    learned.observe(4, 4, 44.0)
    assert [learned.overhead_ms(streams) for streams in (1, 2, 3, 4, 8)] == [1.0, 1.0, 5.0, 5.0, 5.0]


def test_nothing_is_known_before_every_width_was_timed() -> None:
    table = {2: 30.0}
    late = Prices((2, 4), table)
    assert not late.known
    late.observe(1, 1, 99.0)
    table[4] = 39.0
    assert late.known
    assert late.overhead_ms(1) == 8.0
