from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfjax.lanes.allocation import share_rows
from tfjax.lanes.prices import Prices

Price = Callable[[int, int, int], float]


def best_rate(chances: list[list[float]], fixed: int, most: int, table: list[float]) -> tuple[float, int]:
    """Largest worth over price and the fewest rows that reach it, by trying every combination of depths."""
    best = (0.0, 0)
    for depths in product(*[range(len(chain) + 1) for chain in chances]):
        rows = fixed + sum(depths)
        if rows > max(fixed, most):
            continue
        worth = len(chances) + sum(sum(chain[:depth]) for chain, depth in zip(chances, depths, strict=True))
        rate = worth / table[rows]
        if rate > best[0] * (1 + 1e-12) or (rate >= best[0] * (1 - 1e-12) and rows < best[1]):
            best = (rate, rows)
    return best


def every_width(
    chances: list[list[float]], fixed: int, most: int, price: Price, least: int = 0, held: list[bool] | None = None
) -> list[int]:
    """The rule by itself: grow one draft at a time by the best that is next in any stream, look at every width."""
    depths = [0] * len(chances)
    worth = float(len(chances))
    seen = []
    while True:
        rows = fixed + sum(depths)
        by_drafter = [depth for at, depth in enumerate(depths) if depth and (held is None or held[at])]
        seen.append((rows, list(depths), worth, len(by_drafter), max(by_drafter, default=0)))
        nexts = [(chances[at][depth], -depth, -at) for at, depth in enumerate(depths) if depth < len(chances[at])]
        if not nexts or rows >= most:
            break
        chance, _, minus_at = max(nexts)
        depths[-minus_at] += 1
        worth += chance
    wide = [width for width in seen if width[0] >= least]
    if not wide:
        return seen[-1][1]
    rates = [worth / price(rows, drafting, deepest) for rows, _, worth, drafting, deepest in wide]
    return wide[rates.index(max(rates))][1]


def classic(chances: list[list[float]], fixed: int, most: int, price: Callable[[int], float]) -> list[int]:
    """The same without holds, learned rows and learning rounds: a price by rows alone."""
    return every_width(chances, fixed, most, lambda rows, drafting, deepest: price(rows))


chains = st.lists(
    st.lists(st.floats(0.01, 1.0), max_size=4).map(lambda chain: sorted(chain, reverse=True)), min_size=1, max_size=4
)
times = st.lists(st.floats(1, 100), min_size=24, max_size=24)
grids = st.dictionaries(
    st.integers(1, 4), st.dictionaries(st.integers(1, 4), st.floats(0.1, 60), min_size=1, max_size=3), max_size=3
)


@settings(deadline=None)
@given(chains, st.integers(0, 3), st.integers(2, 20), times, st.booleans())
def test_without_holds_the_rate_equals_that_of_every_combination(
    chances: list[list[float]], forced: int, most: int, times: list[float], rising: bool
) -> None:
    table = sorted(times) if rising else times
    fixed = len(chances) + forced
    granted = share_rows(chances, fixed, most, lambda rows, *_: table[rows])
    worth = len(chances) + sum(sum(chain[:count]) for chain, count in zip(chances, granted, strict=True))
    rate, _ = best_rate(chances, fixed, most, table)
    assert worth / table[fixed + sum(granted)] == pytest.approx(rate)
    assert fixed + sum(granted) <= max(fixed, most)


@settings(deadline=None, max_examples=300)
@given(
    chains,
    st.tuples(st.integers(0, 3), st.integers(2, 20), st.integers(0, 12)),
    times,
    st.tuples(st.floats(0, 20), st.floats(0, 20)),
    st.none() | st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_with_holds_and_learning_rounds_it_equals_the_rule_by_itself(
    chances: list[list[float]],
    limits: tuple[int, int, int],
    times: list[float],
    hold: tuple[float, float],
    held: list[bool] | None,
) -> None:
    def price(rows: int, drafting: int, deepest: int) -> float:
        return times[rows] + hold[0] * drafting + hold[1] * deepest

    forced, most, least = limits
    fixed = len(chances) + forced
    granted = share_rows(chances, fixed, most, price, least_rows=least, held=held)
    assert granted == every_width(chances, fixed, most, price, least, held)


@settings(deadline=None, max_examples=300)
@given(chains, st.integers(0, 3), st.sampled_from([(2, 4, 8), (1, 2, 3, 4, 6, 20), (16,)]), times, st.floats(0, 50))
def test_without_holds_learned_rows_and_learning_rounds_it_is_the_classic_rule(
    chances: list[list[float]], forced: int, widths: tuple[int, ...], times: list[float], overhead_ms: float
) -> None:
    streams = len(chances)
    table = dict(zip(widths, times, strict=False))
    prices = Prices(widths, table, {})
    prices.observe(streams, streams, prices.forward_ms(streams) + overhead_ms)
    for rows in range(streams + 1, streams + 9):
        prices.observe(rows, streams, 1.0, drafting=1, deepest=1)
    assert prices.least_rows(streams) is None
    assert not prices.wants_plain(streams)
    granted = share_rows(chances, streams + forced, widths[-1], prices.of_round(streams))
    learned = prices.overhead_ms(streams)
    fixed, widest = streams + forced, widths[-1]

    def price(rows: int) -> float:
        bucket = next((width for width in widths if width >= rows), None)
        return learned + (table[bucket] if bucket else table[widest] * rows / widest)

    assert granted == classic(chances, fixed, widest, price)
    assert granted == share_rows(chances, fixed, widest, prices.of_round(streams), steps=prices.steps)


@settings(deadline=None, max_examples=300)
@given(
    chains,
    st.sampled_from([(2, 4, 8), (1, 2, 3, 4, 6, 20), (16,)]),
    times,
    st.tuples(st.floats(0, 20), st.floats(0, 20)),
    st.lists(st.booleans(), min_size=4, max_size=4),
    st.integers(0, 12),
)
def test_widths_between_the_steps_need_no_look(
    chances: list[list[float]],
    widths: tuple[int, ...],
    times: list[float],
    hold: tuple[float, float],
    held: list[bool],
    least: int,
) -> None:
    def price(rows: int, drafting: int, deepest: int) -> float:
        width = next((width for width in widths if width >= rows), widths[-1])
        return times[width] + hold[0] * drafting + hold[1] * deepest

    rest = {"least_rows": least, "held": held}
    looked_at = share_rows(chances, len(chances), widths[-1], price, **rest)
    assert share_rows(chances, len(chances), widths[-1], price, steps=frozenset(widths), **rest) == looked_at


def hold_ms(grid: dict[int, dict[int, float]], streams: int, depth: int) -> float:
    """Straight lines between measured points; outside, the nearest streams, and depth in proportion."""
    if not grid or not streams:
        return 0.0
    by_streams = {}
    for count, row in grid.items():
        nearest = min(max(depth, min(row)), max(row))
        by_streams[count] = line(row, nearest) * depth / nearest
    return line(by_streams, min(max(streams, min(grid)), max(grid)))


def line(points: dict[int, float], at: int) -> float:
    below = max(point for point in points if point <= at)
    above = min(point for point in points if point >= at)
    part = (at - below) / (above - below) if above > below else 0.0
    return (1 - part) * points[below] + part * points[above]


@given(grids, st.integers(0, 6), st.integers(1, 6))
def test_a_round_costs_overhead_forward_and_hold(
    grid: dict[int, dict[int, float]], drafting: int, deepest: int
) -> None:
    price = Prices((4, 8), {4: 10.0, 8: 15.0}, grid).of_round(2)
    assert price(5, drafting, deepest) == pytest.approx(0.35 * 10.0 + 15.0 + hold_ms(grid, drafting, deepest))


@settings(deadline=None)
@given(chains, st.integers(0, 12), times, grids)
def test_prices_with_a_grid_give_what_the_rule_gives(
    chances: list[list[float]], least: int, times: list[float], grid: dict[int, dict[int, float]]
) -> None:
    fixed = len(chances)
    overhead_ms = min(8.0, 0.35 * times[fixed])
    priced = Prices(range(1, 24), dict(enumerate(times)), grid).of_round(fixed)
    granted = share_rows(chances, fixed, 23, priced, least_rows=least)

    def rate(depths: list[int]) -> float:
        worth = fixed + sum(sum(chain[:depth]) for chain, depth in zip(chances, depths, strict=True))
        hold = hold_ms(grid, fixed - depths.count(0), max(depths)) if any(depths) else 0.0
        return worth / (overhead_ms + times[fixed + sum(depths)] + hold)

    expected = every_width(
        chances,
        fixed,
        23,
        lambda rows, streams, depth: overhead_ms + times[rows] + hold_ms(grid, streams, depth),
        least,
    )
    assert rate(granted) == pytest.approx(rate(expected))
    assert fixed + sum(granted) >= min(least, fixed + sum(map(len, chances)))


def learned_prices(row_ms: float) -> Prices:
    """Widths of 1 to 6 rows at 10 to 20 ms, 2 ms of overhead, 1 ms per deepest draft, and what one round taught."""
    prices = Prices(range(1, 7), {rows: 8.0 + 2 * rows for rows in range(1, 7)}, {1: {1: 1.0}}, learn_rows=True)
    prices.observe(2, 2, 14.0)
    prices.observe(3, 2, 2.0 + 14.0 + 1.0 + row_ms, drafting=1, deepest=1)
    return prices


def test_rows_cheaper_than_the_table_share_two_and_two() -> None:
    chances = [[0.9, 0.81], [0.9, 0.81]]
    assert share_rows(chances, 2, 6, learned_prices(-16.0).of_round(2)) == [2, 2]


def test_without_the_bound_the_same_round_would_stop_at_one_draft() -> None:
    def unbounded(rows: int, drafting: int, deepest: int) -> float:
        return 2.0 + 8.0 + 2 * rows - 16.0 * (rows - 2) + deepest

    assert share_rows([[0.9, 0.81], [0.9, 0.81]], 2, 6, unbounded) == [1, 0]


def test_linear_prices_share_two_and_two() -> None:
    table = {rows: 12 + 0.2 * rows for rows in range(1, 7)}
    assert share_rows([[0.9, 0.81], [0.9, 0.81]], 2, 6, lambda rows, *_: table[rows]) == [2, 2]


def test_the_better_stream_gets_the_row() -> None:
    table = {2: 10.0, 3: 12.0, 4: 100.0}
    assert share_rows([[0.3], [0.9]], 2, 4, lambda rows, *_: table[rows]) == [0, 1]


def test_a_fall_does_not_end_the_search() -> None:
    table = {1: 10.0, 2: 19.5, 3: 20.0, 4: 20.0}
    assert share_rows([[0.9, 0.9, 0.9]], 1, 4, lambda rows, *_: table[rows]) == [3]


def test_ties_take_fewer_rows() -> None:
    assert share_rows([[1.0, 1.0]], 1, 3, lambda rows, *_: 10.0 * rows) == [0]


def test_equal_drafts_go_around_the_streams() -> None:
    assert share_rows([[0.9, 0.9], [0.9, 0.9]], 2, 4, lambda rows, *_: 10.0) == [1, 1]


def test_a_draft_in_the_same_bucket_is_free() -> None:
    assert share_rows([[0.01]], 1, 8, lambda rows, *_: 10.0 if rows <= 2 else 99.0) == [1]


def test_a_chance_of_nothing_is_not_taken() -> None:
    assert share_rows([[0.0]], 1, 8, lambda rows, *_: 10.0) == [0]


def test_a_chance_that_rises_along_a_stream_is_worth_no_more_than_those_before_it() -> None:
    assert share_rows([[0.1, 0.9], [0.5]], 2, 3, lambda rows, *_: 10.0) == [0, 1]
    table = {1: 10.0, 2: 12.0, 3: 12.5}
    assert share_rows([[0.1, 0.9]], 1, 3, lambda rows, *_: table[rows]) == [0]


def test_the_widest_forward_is_never_passed() -> None:
    assert share_rows([[0.9] * 9, [0.8] * 9], 2, 8, lambda rows, *_: 1.0) == [6, 0]
    assert share_rows([[0.9]], 9, 8, lambda rows, *_: 1.0) == [0]


def test_a_width_that_costs_more_than_it_lands_is_refused() -> None:
    table = {2: 30.0, 4: 61.0, 8: 90.0}
    price = lambda rows, *_: table[next(width for width in table if width >= rows)]  # noqa: E731
    assert share_rows([[0.3, 0.28, 0.26]], 1, 8, price) == [1]
    assert share_rows([[0.94, 0.88, 0.83]], 1, 8, price) == [1]
    assert share_rows([[0.94**k for k in range(1, 8)]], 1, 8, price) == [7]


def test_a_hold_is_paid_per_drafting_stream_and_per_depth() -> None:
    chances = [[0.9, 0.8], [0.7]]
    assert share_rows(chances, 2, 9, lambda rows, drafting, deepest: 10.0 + 9 * (drafting > 1)) == [2, 0]
    assert share_rows(chances, 2, 9, lambda rows, drafting, deepest: 10.0 + 9 * (deepest > 1)) == [1, 0]
    assert share_rows(chances, 2, 9, lambda rows, drafting, deepest: 10.0 + 13 * (drafting > 0)) == [0, 0]


def test_only_drafts_that_a_drafter_holds_cost_a_hold() -> None:
    asked = []

    def price(*round_of: int) -> float:
        asked.append(round_of)
        return 10.0

    share_rows([[0.9, 0.8], [0.7], [0.6, 0.5, 0.4]], 3, 99, price, held=[False, True, True])
    assert asked == [(3, 0, 0), (4, 0, 0), (5, 0, 0), (6, 1, 1), (7, 2, 1), (8, 2, 2), (9, 2, 3)]


def asked_prices(
    least_rows: int, chances: list[list[float]], most: int = 99
) -> tuple[list[int], list[tuple[int, ...]]]:
    asked = []

    def price(*round_of: int) -> float:
        asked.append(round_of)
        return 10.0 ** round_of[0]

    return share_rows(chances, 2, most, price, least_rows=least_rows), asked


def test_a_learning_round_is_not_priced_below_its_width_while_its_hold_accumulates() -> None:
    granted, asked = asked_prices(5, [[0.9, 0.8], [0.7, 0.6]])
    assert granted == [2, 1]
    assert asked == [(5, 2, 2), (6, 2, 2)]


def test_a_learning_round_may_still_be_wider_where_that_pays() -> None:
    assert share_rows([[0.9, 0.9, 0.9]], 1, 9, lambda rows, *_: 100.0 / rows, least_rows=3) == [3]


def test_a_learning_round_that_offers_cannot_fill_takes_every_draft() -> None:
    granted, asked = asked_prices(9, [[0.9, 0.0], [0.7]])
    assert granted == [2, 1]
    assert asked == []


def test_a_learning_round_cannot_pass_the_widest_forward() -> None:
    granted, asked = asked_prices(9, [[0.9, 0.8], [0.7]], most=4)
    assert granted == [2, 0]
    assert asked == []


def test_a_learning_round_that_forced_rows_fill_is_priced_as_any_other() -> None:
    granted, asked = asked_prices(2, [[0.9], []])
    assert granted == [0, 0]
    assert asked == [(2, 0, 0), (3, 1, 1)]


def test_the_first_draft_may_be_dearer_though_the_width_is_the_same() -> None:
    """What rounds with drafts were seen to take beyond their price starts with the first draft."""

    def price_ms(rows: int, drafting: int, deepest: int) -> float:
        return 30.0 if rows == 1 else 40.0

    assert share_rows([(0.1,)], 1, 8, price_ms, held=[False], steps={2, 4}) == [0]
    assert share_rows([(0.5,)], 1, 8, price_ms, held=[False], steps={2, 4}) == [1]
