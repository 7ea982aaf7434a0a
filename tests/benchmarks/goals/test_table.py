from __future__ import annotations

from typing import Any

import pytest

from benchmarks.goals.child import BLOCKS
from benchmarks.goals.names import EXPECTED_S
from benchmarks.goals.table import GOALS, Goal, measured, table

FAST = Goal("windows", "16 rows", "window", "3.49 ms", 4.3, "ms")
MANY = Goal("small lanes", "plain", "stream", "", 1500.0, "tokens/s", at_most=False)
TOLD = Goal("tax", "1 rows", "tax", "XLA: 1", None, "x")


def lines(found: dict[str, Any], *goals: Goal) -> list[str]:
    return table(found, goals).splitlines()[2:]


def test_the_columns_are_those_that_were_agreed_on() -> None:
    assert table({}, []).splitlines()[0] == "| work | limit | goal | measured | met |"


@pytest.mark.parametrize(("value", "met"), [(4.3, "yes"), (4.31, "no")])
def test_a_time_is_met_from_below(value: float, met: str) -> None:
    found = {"windows": {"16 rows": {"value": value}}}
    assert lines(found, FAST) == [f"| window | 3.49 ms | <= 4.30 ms | {value:.2f} ms | {met} |"]


@pytest.mark.parametrize(("value", "met"), [(1499.0, "no"), (1500.0, "yes")])
def test_a_rate_is_met_from_above(value: float, met: str) -> None:
    found = {"small lanes": {"plain": {"value": value, "note": "assumed\n| by hand"}}}
    assert lines(found, MANY) == [
        f"| stream | - | >= 1,500 tokens/s | {value:,.0f} tokens/s (assumed / by hand) | {met} |"
    ]


def test_what_has_no_goal_is_reported() -> None:
    assert lines({"tax": {"1 rows": {"value": 1.25}}}, TOLD) == ["| tax | XLA: 1 | reported | 1.25 x | - |"]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({}, "not measured"),
        ({"windows": {"16 rows": {"error": "no | room"}}}, "not measured: no / room"),
        ({"windows": {"error": "its process ended with code -9"}}, "not measured: its process ended with code -9"),
        ({"windows": {"left_out": {"16 rows": "late"}}}, "not measured: late"),
    ],
)
def test_what_was_not_measured_is_neither_met_nor_missed(found: dict[str, Any], told: str) -> None:
    assert lines(found, FAST) == [f"| window | 3.49 ms | <= 4.30 ms | {told} | - |"]


def test_every_goal_is_in_a_block_that_runs() -> None:
    assert {goal.block for goal in GOALS} == set(EXPECTED_S) == set(BLOCKS)
    assert len({(goal.block, goal.row) for goal in GOALS}) == len(GOALS)


def test_limits_are_those_of_memory() -> None:
    by_place = {(goal.block, goal.row): goal for goal in GOALS}
    assert by_place["windows", "1 rows"].limit == "3.49 ms"
    assert by_place["long context", "1 rows"].goal == pytest.approx(1.25 * 4.49, abs=0.01)
    assert measured({}, FAST) is None
