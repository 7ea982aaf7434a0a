from __future__ import annotations

from typing import Any

import pytest

from tfjax.lanes.outcome import judge
from tfjax.lanes.stream import Request, Stream, Times
from tfjax.lanes.window import Result, Window


def window(drafts: tuple[int, ...] = (), forced: int = 0, **options: Any) -> Window:
    stream = Stream(Request("r", (1,), 50, frozenset({9}), **options), 51, Times(0.0))
    stream.forced.extend(drafts[:forced])
    return Window(stream, 0, 1, drafts, forced)


@pytest.mark.parametrize(
    ("drafts", "forced", "draws", "tokens", "accepted", "reason"),
    [
        ((), 0, [5], [5], 0, None),
        ((5, 6), 0, [5, 6, 7], [5, 6, 7], 2, None),
        ((5, 6), 0, [5, 8, 7], [5, 8], 1, None),
        ((5, 9, 6), 0, [5, 9, 6, 7], [5, 9], 2, "stop"),
        ((5, 6), 0, [5, 9, 7], [5, 9], 1, "stop"),
        ((5, 6, 7), 2, [0, 0, 7, 8], [5, 6, 7, 8], 1, None),
        ((9, 6, 7), 2, [0, 0, 7, 8], [9], 0, "stop"),
    ],
)
def test_tokens_accepted_and_reason(
    drafts: tuple[int, ...], forced: int, draws: list[int], tokens: list[int], accepted: int, reason: str | None
) -> None:
    outcome = judge(window(drafts, forced), Result(draws, [str(draw) for draw in draws]))
    assert (list(outcome.tokens), outcome.accepted, outcome.reason) == (tokens, accepted, reason)
    assert outcome.kept == len(tokens)
    assert outcome.logprobs == [str(draw) for draw in draws][: len(tokens)]


def test_a_cancelled_stream_emits_nothing() -> None:
    rows = window((5,))
    rows.stream.cancelled = True
    outcome = judge(rows, Result([5, 6]))
    assert (outcome.kept, outcome.reason) == (0, "cancelled")


def test_numbers_that_are_not_finite_emit_nothing() -> None:
    outcome = judge(window((5,)), Result([5, 6], error="not finite"))
    assert (outcome.kept, outcome.reason, outcome.error) == (0, "error", "not finite")


def test_a_result_that_is_too_short_is_an_error_of_its_stream() -> None:
    outcome = judge(window((5,)), Result([5]))
    assert (outcome.kept, outcome.reason) == (0, "error")
    assert "IndexError" in str(outcome.error)


def test_advancing_takes_tokens_rows_and_forced_tokens() -> None:
    rows = window((5, 6, 7), 2)
    rows.stream.forced.append(8)
    judge(rows, Result([0, 0, 0, 0])).advance()
    assert rows.stream.context == [1, 5, 6, 8]
    assert rows.stream.cache_length == 3
    assert not rows.stream.forced
