from __future__ import annotations

from collections.abc import Callable

import pytest

from tfjax.lanes.cuts import cut
from tfjax.lanes.stream import Request, Stream, Times


def stream(max_new: int, stops: set[int], check: Callable[[int], bool] | None = None) -> Stream:
    return Stream(Request("r", (1, 2), max_new, frozenset(stops), check=check), 2 + max_new, Times(0.0))


@pytest.mark.parametrize(
    ("max_new", "stops", "checked", "expected"),
    [
        (9, set(), None, (4, None)),
        (4, set(), None, (4, "length")),
        (2, set(), None, (2, "length")),
        (9, {7}, None, (3, "stop")),
        (9, {5}, None, (1, "stop")),
        (9, {8, 6}, None, (2, "stop")),
        (9, set(), 6, (2, "stop")),
        (9, {7}, 6, (2, "stop")),
        (9, {6}, 7, (2, "stop")),
        (1, {6}, 7, (1, "length")),
        (2, {6}, None, (2, "stop")),
        (2, set(), 6, (2, "stop")),
    ],
)
def test_the_earliest_cut_wins(
    max_new: int, stops: set[int], checked: int | None, expected: tuple[int, str | None]
) -> None:
    assert cut(stream(max_new, stops, lambda token: token == checked), [5, 6, 7, 8]) == expected


def test_the_check_sees_each_emitted_token_once_and_no_stop_id() -> None:
    seen: list[int] = []

    def check(token: int) -> bool:
        seen.append(token)
        return False

    cut(stream(9, {7}, check), [5, 6, 7, 8])
    assert seen == [5, 6]


def test_tokens_emitted_earlier_count_towards_the_length() -> None:
    late = stream(4, set())
    late.context += [9, 9, 9]
    assert cut(late, [5, 6]) == (1, "length")


def test_the_context_limit_cuts_as_a_length() -> None:
    short = Stream(Request("r", (1, 2), 99), 5, Times(0.0))
    assert cut(short, [5, 6, 7, 8]) == (3, "length")
