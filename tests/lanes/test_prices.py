from __future__ import annotations

import pytest

from tfjax.lanes.holds import HoldGrid
from tfjax.lanes.prices import Prices

TABLE = {2: 30.0, 4: 39.0, 8: 47.0}
GRID = {1: {1: 2.0, 3: 4.0}, 2: {1: 3.0, 3: 6.0}}


def prices(*, learn_rows: bool = False, measure_width: bool = False) -> Prices:
    return Prices((2, 4, 8), TABLE, GRID, learn_rows=learn_rows, measure_width=measure_width)


def taught(*row_ms: float, streams: int = 1, rows: int = 3) -> Prices:
    """Rows learned from rounds of one drafting stream: 5 ms of overhead, then 2 ms of hold and this much per row."""
    learned = prices(learn_rows=True)
    learned.observe(streams, streams, learned.forward_ms(streams) + 5.0)
    for extra_ms in row_ms:
        round_ms = 5.0 + learned.forward_ms(rows) + 2.0 + extra_ms * (rows - streams)
        learned.observe(rows, streams, round_ms, drafting=1, deepest=1)
    return learned


@pytest.mark.parametrize(("rows", "ms"), [(1, 30), (2, 30), (3, 39), (4, 39), (5, 47), (8, 47)])
def test_rows_cost_the_width_that_they_pad_to(rows: int, ms: float) -> None:
    assert prices().forward_ms(rows) == ms


def test_above_the_widest_the_time_is_proportional() -> None:
    assert prices().forward_ms(12) == 70.5


def test_before_any_round_the_overhead_is_8_ms() -> None:
    assert prices().of_round(1)(1, 0, 0) == 38.0


def test_but_only_a_share_of_a_short_forward() -> None:
    assert Prices((2,), {2: 2.0}).of_round(1)(1, 0, 0) == pytest.approx(2.0 + 0.35 * 2.0)


def test_a_round_with_drafts_adds_its_hold() -> None:
    assert prices().of_round(2)(4, 2, 2) == 8.0 + 39.0 + 4.5
    assert prices().of_round(2)(4, 0, 0) == 8.0 + 39.0
    assert Prices((2, 4, 8), TABLE).of_round(2)(4, 2, 2) == 8.0 + 39.0


def test_overhead_is_a_moving_average_of_what_plain_rounds_took_beyond_the_table() -> None:
    learned = prices()
    learned.observe(1, 1, 40.0)
    assert learned.overhead_ms(1) == 10.0
    learned.observe(1, 1, 50.0)
    assert learned.overhead_ms(1) == pytest.approx(12.0)
    assert learned.of_round(1)(3, 0, 0) == pytest.approx(51.0)


def test_overhead_is_never_negative() -> None:
    learned = prices()
    learned.observe(1, 1, 3.0)
    assert learned.overhead_ms(1) == 0.0


def test_rounds_with_drafts_or_forced_rows_teach_no_overhead() -> None:
    learned = prices(learn_rows=True)
    learned.observe(2, 1, 99.0, drafting=1, deepest=1)
    learned.observe(2, 1, 99.0)
    assert learned.overhead_ms(1) == 8.0


def test_the_nearest_number_of_streams_stands_in() -> None:
    learned = prices()
    learned.observe(1, 1, 31.0)
    learned.observe(4, 4, 44.0)
    assert [learned.overhead_ms(streams) for streams in (1, 2, 3, 4, 8)] == [1.0, 1.0, 5.0, 5.0, 5.0]


def test_nothing_is_learned_before_every_width_was_timed() -> None:
    table = {2: 30.0}
    late = Prices((2, 4), table, learn_rows=True)
    for _ in range(9):
        late.observe(1, 1, 99.0)
        late.observe(3, 1, 99.0, drafting=1, deepest=1)
    known, least = late.known, late.least_rows(1)
    table[4] = 39.0
    assert (known, least) == (False, None)
    assert (late.known, late.least_rows(1)) == (True, 3)
    assert late.overhead_ms(1) == 8.0
    assert not late.wants_plain(1)


# Rows.


def test_a_row_beyond_one_per_stream_costs_what_rounds_with_drafts_took_too_long() -> None:
    learned = taught(1.5)
    assert learned.forward_ms(3, 1) == pytest.approx(39.0 + 2 * 1.5)
    assert learned.forward_ms(4, 1) == pytest.approx(39.0 + 3 * 1.5)
    assert learned.forward_ms(4, 3) == pytest.approx(39.0 + 1.5)
    assert learned.forward_ms(3) == 39.0
    assert learned.of_round(1)(5, 1, 3) == pytest.approx(5.0 + 47.0 + 4 * 1.5 + 4.0)


def test_rows_are_a_moving_average() -> None:
    assert taught(1.5, 3.5).forward_ms(2, 1) == pytest.approx(30.0 + 1.5 + 0.2 * 2.0)


def test_a_row_may_cost_less_than_the_table_but_no_forward_less_than_its_streams() -> None:
    learned = taught(-4.0)
    assert learned.forward_ms(3, 1) == pytest.approx(39.0 - 8.0)
    assert learned.forward_ms(4, 1) == 30.0
    assert learned.forward_ms(4, 3) == 39.0


def test_a_table_that_dips_is_not_bounded_while_nothing_was_learned() -> None:
    assert Prices((2, 4), {2: 30.0, 4: 29.5}, learn_rows=True).forward_ms(3, 1) == 29.5


def test_rows_are_not_learned_unless_asked_for() -> None:
    learned = prices(measure_width=True)
    learned.observe(1, 1, 35.0)
    learned.observe(3, 1, 99.0, drafting=1, deepest=1)
    assert learned.forward_ms(3, 1) == 39.0


def test_rows_are_not_learned_at_a_number_of_streams_without_a_plain_round() -> None:
    learned = prices(learn_rows=True)
    learned.observe(1, 1, 35.0)
    learned.observe(4, 2, 99.0, drafting=2, deepest=1)
    assert learned.forward_ms(4, 2) == 39.0
    learned.observe(2, 2, 35.0)
    learned.observe(4, 2, 5.0 + 39.0 + 3.0 + 2 * 0.5, drafting=2, deepest=1)
    assert learned.forward_ms(4, 2) == pytest.approx(40.0)


def test_forced_rows_alone_teach_no_row() -> None:
    learned = taught()
    learned.observe(3, 1, 99.0)
    assert learned.forward_ms(3, 1) == 39.0


def test_drafts_that_came_without_a_hold_teach_rows_all_the_same() -> None:
    learned = taught()
    learned.observe(3, 1, 5.0 + 39.0 + 2 * 1.5, drafting=1, deepest=0)
    assert learned.forward_ms(3, 1) == pytest.approx(42.0)


# One plain round for each number of streams.


def test_the_third_round_goes_without_drafts_where_none_was_plain() -> None:
    learned = prices(learn_rows=True)
    wanted, least = [], []
    for _ in range(9):
        wanted.append(learned.wants_plain(2))
        least.append(learned.least_rows(2))
        learned.observe(4, 2, 50.0, drafting=2, deepest=1)
    assert wanted == [False] * 2 + [True] * 7
    assert least == [4] * 2 + [None] * 7
    assert not learned.wants_plain(1)
    learned.observe(2, 2, 50.0)
    assert not learned.wants_plain(2)


def test_a_plain_round_in_time_is_enough() -> None:
    learned = prices(learn_rows=True)
    learned.observe(2, 2, 50.0)
    for _ in range(20):
        learned.observe(4, 2, 50.0, drafting=2, deepest=1)
    assert not learned.wants_plain(2)


@pytest.mark.parametrize(
    ("learn_rows", "grid", "wanted"), [(False, {}, False), (True, {}, True), (False, GRID, True), (True, GRID, True)]
)
def test_a_round_is_made_plain_only_where_rows_are_learned_or_holds_have_prices(
    learn_rows: bool, grid: HoldGrid, wanted: bool
) -> None:
    learned = Prices((2, 4, 8), TABLE, grid, learn_rows=learn_rows, measure_width=True)
    for _ in range(20):
        learned.observe(4, 2, 50.0, drafting=2, deepest=1)
    assert learned.wants_plain(2) == wanted
    learned.observe(2, 2, 50.0)
    assert not learned.wants_plain(2)


def test_each_number_of_streams_has_a_plain_round_of_its_own() -> None:
    learned = prices()
    for streams in (2, 1, 2, 1):
        assert not learned.wants_plain(streams)
        learned.observe(4, streams, 50.0, drafting=streams, deepest=1)
    learned.observe(2, 2, 50.0)
    assert (learned.wants_plain(1), learned.wants_plain(2)) == (True, False)


# Rounds that measure a width.


def test_no_round_measures_unless_asked_for() -> None:
    assert prices().least_rows(1) is None


@pytest.mark.parametrize("learn_rows", [True, False])
def test_rounds_reach_two_drafts_until_eight_had_drafts_and_then_every_32nd(learn_rows: bool) -> None:
    learned = prices(learn_rows=learn_rows, measure_width=not learn_rows)
    learned.observe(3, 3, 50.0)
    learning = []
    for number in range(2, 100):
        if learned.least_rows(3) is not None:
            assert learned.least_rows(3) == 5
            learning.append(number)
        learned.observe(5, 3, 50.0, drafting=2, deepest=1)
    assert learning == [2, 3, 4, 5, 6, 7, 8, 9, 32, 64, 96]


def test_plain_rounds_count_among_the_32_but_not_among_the_eight() -> None:
    learned = prices(learn_rows=True)
    for _ in range(20):
        learned.observe(1, 1, 35.0)
        assert learned.least_rows(1) == 3
    for _ in range(8):
        learned.observe(3, 1, 50.0, drafting=1, deepest=1)
    learning = []
    for number in range(29, 65):
        if learned.least_rows(1) is not None:
            learning.append(number)
        learned.observe(1, 1, 35.0)
    assert learning == [32, 64]


def test_each_number_of_streams_is_measured_by_itself() -> None:
    learned = taught(*[1.0] * 8)
    assert learned.least_rows(1) is None
    assert learned.least_rows(2) == 4


def underpriced(*beyond_ms: float, streams: int = 2) -> Prices:
    """Rounds of two drafting streams, 5 ms of overhead, that took so much more than their price."""
    learned = prices()
    learned.observe(streams, streams, learned.forward_ms(streams) + 5.0)
    for surplus_ms in beyond_ms:
        learned.observe(4, streams, 5.0 + 39.0 + 3.0 + surplus_ms, drafting=2, deepest=1)
    return learned


def test_rounds_with_drafts_add_what_they_were_seen_to_take_beyond_their_price() -> None:
    assert underpriced(10.0).of_round(2)(4, 2, 1) == pytest.approx(5 + 39 + 3 + 10)
    assert underpriced(10.0, 20.0).of_round(2)(4, 2, 1) == pytest.approx(5 + 39 + 3 + 12)
    assert underpriced(10.0).of_round(2)(2, 0, 0) == 5 + 30  # a plain round takes no more
    assert underpriced(10.0).of_round(1)(2, 1, 1) == 5 + 30 + 2  # nor do rounds of another number of streams


def test_rounds_with_drafts_are_never_priced_below_the_tables() -> None:
    assert underpriced(-10.0).of_round(2)(4, 2, 1) == 5 + 39 + 3


def test_what_drafts_took_beyond_their_price_fades_with_plain_rounds() -> None:
    learned = underpriced(10.0)
    for _ in range(100):
        learned.observe(2, 2, 35.0)
    assert learned.of_round(2)(4, 2, 1) == pytest.approx(5 + 39 + 3 + 10 * 0.99**100)


def test_only_one_of_rows_and_rounds_learns_what_drafts_take_beyond_their_price() -> None:
    rows = prices(learn_rows=True)
    unpriced = Prices((2, 4, 8), TABLE)
    for learned in (rows, unpriced):
        learned.observe(2, 2, 35.0)
        learned.observe(4, 2, 5.0 + 39.0 + 10.0, drafting=2, deepest=0)
    assert rows.of_round(2)(4, 0, 0) == pytest.approx(5 + 39 + 10)
    assert unpriced.of_round(2)(4, 2, 1) == 5 + 39


def test_the_first_plain_round_that_was_queued_ahead_replaces_what_waiting_ones_took() -> None:
    learned = prices()
    learned.observe(1, 1, 60.0)
    learned.observe(1, 1, 35.0, ahead=True)
    assert learned.overhead_ms(1) == 5.0
    learned.observe(1, 1, 45.0, ahead=True)
    assert learned.overhead_ms(1) == pytest.approx(7.0)
    learned.observe(2, 2, 50.0)
    assert learned.overhead_ms(2) == 20.0


def test_after_that_those_that_wait_only_tell_what_waiting_takes() -> None:
    learned = prices()
    learned.observe(1, 1, 35.0, ahead=True)
    assert learned.wait_ms(1) == pytest.approx(0.25 * 35.0)
    learned.observe(1, 1, 41.0)
    assert (learned.overhead_ms(1), learned.wait_ms(1)) == (5.0, 6.0)
    learned.observe(3, 1, 39.0 + 5.0 + 16.0, drafting=1)
    assert learned.wait_ms(1) == pytest.approx(8.0)
    assert learned.of_round(1)(3, 0, 0) == pytest.approx(44.0)
    learned.observe(1, 1, 20.0)
    assert learned.wait_ms(1) == pytest.approx(0.8 * 8.0)
    assert learned.wait_ms(16) == learned.wait_ms(1)


def test_a_hold_that_waited_is_not_dearer_for_it() -> None:
    learned = prices()
    learned.observe(1, 1, 35.0, ahead=True)
    learned.observe(1, 1, 41.0)
    learned.observe(3, 1, 5.0 + 39.0 + 4.0 + 6.0, drafting=1, deepest=3)
    assert learned.of_round(1)(3, 1, 3) == pytest.approx(5.0 + 39.0 + 4.0)
    learned.observe(3, 1, 5.0 + 39.0 + 4.0 + 6.0, drafting=1, deepest=3, ahead=True)
    assert learned.of_round(1)(3, 1, 3) == pytest.approx(5.0 + 39.0 + 4.0 + 0.2 * 6.0)


def test_a_round_that_took_far_longer_than_its_price_counts_as_four_times_that() -> None:
    learned = prices()
    learned.observe(1, 1, 1000.0)
    assert learned.overhead_ms(1) == 970.0, "nothing is known that it could be held against"
    learned = prices()
    learned.observe(1, 1, 40.0)
    learned.observe(1, 1, 1000.0)
    assert learned.overhead_ms(1) == pytest.approx(10.0 + 0.2 * (160.0 - 30.0 - 10.0))
    before_ms = learned.of_round(1)(3, 1, 1)
    learned.observe(3, 1, 1000.0, drafting=1, deepest=1)
    assert learned.of_round(1)(3, 1, 1) == pytest.approx(before_ms * (1 + 3.0))
