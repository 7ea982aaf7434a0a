from __future__ import annotations

import pytest

from tfjax.lanes.holds import Holds, pays

GRID = {2: {1: 4.0, 3: 8.0}, 4: {1: 6.0, 3: 14.0}}


@pytest.mark.parametrize(
    ("streams", "depth", "ms"),
    [
        (2, 1, 4.0),
        (4, 3, 14.0),
        (2, 2, 6.0),
        (3, 1, 5.0),
        (3, 2, 8.0),
        (3, 3, 11.0),
    ],
)
def test_both_directions_are_linear_between_measured_points(streams: int, depth: int, ms: float) -> None:
    assert Holds(GRID).ms(streams, depth) == pytest.approx(ms)


@pytest.mark.parametrize(("streams", "nearest"), [(1, 2), (5, 4), (100, 4)])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_outside_the_nearest_number_of_streams_stands_in(streams: int, nearest: int, depth: int) -> None:
    assert Holds(GRID).ms(streams, depth) == Holds(GRID).ms(nearest, depth)


def test_beyond_the_deepest_the_time_is_proportional() -> None:
    assert Holds(GRID).ms(2, 6) == 16.0
    assert Holds(GRID).ms(3, 6) == pytest.approx((16.0 + 28.0) / 2)


def test_before_the_shallowest_the_time_is_proportional() -> None:
    assert Holds({1: {4: 8.0, 8: 10.0}}).ms(1, 1) == 2.0


def test_streams_need_not_be_measured_at_the_same_depths() -> None:
    assert Holds({1: {2: 4.0}, 3: {1: 3.0, 3: 9.0}, 2: {}}).ms(2, 2) == pytest.approx((4.0 + 6.0) / 2)


@pytest.mark.parametrize(("streams", "depth"), [(0, 3), (2, 0), (0, 0)])
def test_no_streams_or_no_drafts_cost_nothing(streams: int, depth: int) -> None:
    assert Holds(GRID).ms(streams, depth) == 0.0


@pytest.mark.parametrize("grid", [{}, {1: {}}])
def test_an_empty_grid_is_no_price(grid: dict[int, dict[int, float]]) -> None:
    assert not Holds(grid).priced
    assert Holds(grid).ms(1, 1) == 0.0


def test_the_grid_may_be_measured_later() -> None:
    grid: dict[int, dict[int, float]] = {}
    holds = Holds(grid)
    assert holds.table()(1, 2) == 0.0
    grid[1] = {1: 5.0}
    assert holds.priced
    assert (holds.ms(1, 2), holds.table()(1, 2)) == (10.0, 10.0)
    grid[1][2] = 7.0
    assert (holds.ms(1, 2), holds.table()(1, 2)) == (7.0, 7.0)


def test_the_table_works_nothing_out_twice() -> None:
    grid = {1: {1: 5.0}}
    holds = Holds(grid)
    table = holds.table()
    assert table(1, 1) == 5.0
    grid[1] = {1: 99.0}
    assert holds.table()(1, 1) == 5.0


def test_exploring_stays_under_a_quarter_more_than_a_plain_round() -> None:
    assert Holds().can_explore(12.4, 10.0)
    assert not Holds().can_explore(12.5, 10.0)


def test_drafts_pay_from_five_percent_on() -> None:
    assert pays(1.05, 10.0, 1.0, 10.0)
    assert not pays(1.04, 10.0, 1.0, 10.0)
    assert pays(2.1, 20.0, 1.0, 10.0)
    assert not pays(2.1, 20.1, 1.0, 10.0)
    assert not pays(2.1, 10.0, 2.01, 10.0)


def test_another_margin_may_be_asked_for() -> None:
    assert pays(1.0, 10.0, 1.0, 10.0, margin=1.0)
    assert not pays(1.19, 10.0, 1.0, 10.0, margin=1.2)
