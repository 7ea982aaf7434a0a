from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfjax.lanes.allocation import share_rows


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


chains = st.lists(
    st.lists(st.floats(0.01, 1.0), max_size=4).map(lambda chain: sorted(chain, reverse=True)), min_size=1, max_size=4
)


@settings(deadline=None)
@given(
    chains, st.integers(0, 3), st.integers(2, 20), st.lists(st.floats(1, 100), min_size=24, max_size=24), st.booleans()
)
def test_the_rate_equals_brute_force(
    chances: list[list[float]], forced: int, most: int, times: list[float], rising: bool
) -> None:
    table = sorted(times) if rising else times
    fixed = len(chances) + forced
    granted = share_rows(chances, fixed, most, lambda rows, *_: table[rows])
    worth = len(chances) + sum(sum(chain[:count]) for chain, count in zip(chances, granted, strict=True))
    rate, _ = best_rate(chances, fixed, most, table)
    assert worth / table[fixed + sum(granted)] == pytest.approx(rate)
    assert fixed + sum(granted) <= max(fixed, most)


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


def test_a_draft_in_the_same_bucket_is_free() -> None:
    assert share_rows([[0.01]], 1, 8, lambda rows, *_: 10.0 if rows <= 2 else 99.0) == [1]


def test_a_chance_of_nothing_is_not_taken() -> None:
    assert share_rows([[0.0]], 1, 8, lambda rows, *_: 10.0) == [0]


def test_the_widest_forward_is_never_passed() -> None:
    assert share_rows([[0.9] * 9, [0.8] * 9], 2, 8, lambda rows, *_: 1.0) == [6, 0]
    assert share_rows([[0.9]], 9, 8, lambda rows, *_: 1.0) == [0]


def test_a_width_that_costs_more_than_it_lands_is_refused() -> None:
    table = {2: 30.0, 4: 61.0, 8: 90.0}
    price = lambda rows, *_: table[next(width for width in table if width >= rows)]  # noqa: E731
    assert share_rows([[0.3, 0.28, 0.26]], 1, 8, price) == [1]
    assert share_rows([[0.94, 0.88, 0.83]], 1, 8, price) == [1]
    assert share_rows([[0.94**k for k in range(1, 8)]], 1, 8, price) == [7]
