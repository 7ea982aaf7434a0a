from __future__ import annotations

import random
import statistics

import pytest

from tfjax.bench.rates import (
    LOOP_CHARS,
    Paired,
    aggregate_tps,
    decode_tps,
    fresh_pace,
    looped,
    looped_share,
    median,
    paired,
    steady_tps,
)
from tfjax.bench.reply import Arrival, Reply


def reply(*pieces: tuple[float, str], sent_s: float = 0.0, tokens: int | None = None) -> Reply:
    """Pieces are (when, text); one token a character unless said otherwise."""
    text = "".join(piece for _, piece in pieces)
    arrivals = tuple(Arrival(at_s, len(piece)) for at_s, piece in pieces)
    return Reply(sent_s, arrivals[-1].at_s if arrivals else sent_s, arrivals, text, tokens or len(text))


def letters(count: int, seed: int = 0) -> str:
    return "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz", k=count))


def test_decode_rate_is_from_first_to_last_text() -> None:
    assert decode_tps(reply((1.0, "a"), (1.5, "bc"), (3.0, "d"))) == 3 / 2
    assert decode_tps(reply((1.0, "ab"), (3.0, "cd"), tokens=9)) == 8 / 2


@pytest.mark.parametrize("pieces", [(), ((1.0, "abc"),), ((1.0, "a"), (1.0, "b"))])
def test_no_decode_rate(pieces: tuple[tuple[float, str], ...]) -> None:
    assert decode_tps(reply(*pieces)) is None


def test_time_to_first_text() -> None:
    assert reply((1.25, "a"), (2.0, "b"), sent_s=1.0).ttft_ms == 250
    assert Reply(1.0, 3.0, (), "", 2).ttft_ms == 2000


def test_loops_are_runs_that_stood_there_before() -> None:
    once, other = letters(LOOP_CHARS), letters(LOOP_CHARS, 1)
    assert not any(looped(once + other))
    assert looped(once + other + once) == [False] * 2 * LOOP_CHARS + [True] * LOOP_CHARS
    assert not any(looped(once + other + once[:-1]))
    assert looped("x" * (LOOP_CHARS + 3)) == [False] + [True] * (LOOP_CHARS + 2)


def test_looped_share() -> None:
    once = letters(LOOP_CHARS)
    assert looped_share([reply((1, once + once)), reply((1, letters(2 * LOOP_CHARS, 1)))]) == 0.25
    assert looped_share([reply()]) == 0.0


def test_fresh_pace_leaves_loops_out() -> None:
    """Fresh text takes a second a round, the loop a tenth."""
    once = letters(LOOP_CHARS)
    pace = fresh_pace([reply((0.0, "-"), (1.0, once[:32]), (2.0, once[32:]), (2.1, once), (3.1, "!"), tokens=260)])
    assert pace.tokens == pytest.approx(65 * 2)
    assert pace.seconds == pytest.approx(3.0)
    assert pace.tps == pytest.approx(130 / 3)


def test_a_piece_half_in_a_loop_counts_half() -> None:
    once = letters(LOOP_CHARS)
    pace = fresh_pace([reply((0.0, once), (1.0, once + letters(LOOP_CHARS, 1)))])
    assert (pace.tokens, pace.seconds) == (LOOP_CHARS, 0.5)


def test_fresh_pace_of_several_streams_weighs_their_tokens() -> None:
    slow, fast = reply((0, "a"), (4, "b")), reply((0, "a"), (1, "bcd"))
    assert fresh_pace([slow, fast]).tps == 4 / 5
    assert fresh_pace([reply((0, "a"))]).tps is None
    assert fresh_pace([]).tps is None


def test_aggregate_is_from_first_request_to_last_text() -> None:
    assert aggregate_tps([reply((2, "ab"), sent_s=1), reply((3, "cd"), (5, "e"), sent_s=2)]) == 5 / 4


def test_steady_counts_only_while_all_decode() -> None:
    one = reply((1.0, "a"), (2.0, "b"), (3.0, "c"), (4.0, "d"))
    other = reply((2.0, "a"), (2.5, "bb"), (3.0, "c"), (9.0, "dddd"))
    assert steady_tps([one, other]) == (2 + 3) / 2
    assert steady_tps([one]) == 1.0


def test_steady_knows_tokens_from_characters() -> None:
    assert steady_tps([reply((0, "ab"), (1, "cd"), tokens=8)]) == 4.0


def test_steady_is_unknown_where_streams_never_overlap() -> None:
    assert steady_tps([reply((0, "a"), (1, "b")), reply((1, "a"), (2, "b"))]) is None
    assert steady_tps([reply((0, "a"), (1, "b")), reply((0, "ab"))]) is None


def test_median_leaves_out_the_unknown() -> None:
    assert median([3.0, None, 1.0]) == 2.0
    assert median([None]) is None


def test_pairs() -> None:
    found = paired([2.0, 3.0, None, 1.0], [1.0, 2.0, 1.0, None])
    assert found.ratios == (2.0, 1.5)
    assert found.median == 1.75
    with pytest.raises(ValueError, match="shorter"):
        paired([1.0], [])


def test_quartiles_are_those_of_the_library() -> None:
    ratios = (1.0, 1.2, 1.1, 0.9)
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    assert Paired(ratios).quartiles == (low, high)
    assert Paired((1.5,)).quartiles == (1.5, 1.5)
    assert (Paired(()).median, Paired(()).quartiles) == (None, None)
