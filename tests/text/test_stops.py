"""Stop strings are found wherever the pieces are cut, and nothing is held back without need."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjax.text.stops import StopMatcher

SMALL = st.text(alphabet="abé", max_size=24)
STOPS = st.lists(st.text(alphabet="abé", max_size=5), max_size=4)


def run(pieces: list[str], stops: list[str]) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    shown = [matcher.push(piece) for piece in pieces]
    return [*shown, matcher.flush()], matcher.hit


def oracle(text: str, stops: list[str]) -> tuple[str, bool]:
    """Over the whole text: the stop string that ends first, the longest of those."""
    for end in range(1, len(text) + 1):
        lengths = [len(stop) for stop in stops if stop and text[:end].endswith(stop)]
        if lengths:
            return text[: end - max(lengths)], True
    return text, False


def cut(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(min(at, len(text)) for at in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


@given(text=SMALL, stops=STOPS, cuts=st.lists(st.integers(0, 24), max_size=8))
def test_equals_the_whole_text_search_under_any_cut(text: str, stops: list[str], cuts: list[int]) -> None:
    shown, hit = run(cut(text, cuts), stops)
    assert ("".join(shown), hit) == oracle(text, stops)


@given(text=SMALL, stops=STOPS)
def test_holds_back_only_a_tail_that_begins_a_stop_string(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = ""
    for end in range(1, len(text) + 1):
        shown += matcher.push(text[end - 1])
        if matcher.hit:
            break
        held = text[len(shown) : end]
        assert not held or any(stop.startswith(held) for stop in stops)


@pytest.mark.parametrize(
    ("text", "stop"),
    [("aaab", "aab"), ("abababc", "ababc"), ("aabaaabaaac", "aabaaac"), ("ababab", "abab"), ("aabaabaab!", "aabaab!")],
)
def test_stop_strings_that_overlap_themselves(text: str, stop: str) -> None:
    shown, hit = run(list(text), [stop])
    assert hit
    assert ("".join(shown), hit) == oracle(text, [stop])


def test_stop_string_early_in_a_long_piece_ends_the_text() -> None:
    assert run(["aa STOP bbbbbbbbbbbb"], ["STOP"]) == (["aa ", ""], True)


def test_stop_string_over_two_pieces() -> None:
    assert run(["aa ST", "OP bb"], ["STOP"]) == (["aa ", "", ""], True)


def test_text_after_a_hit_is_dropped() -> None:
    matcher = StopMatcher(["x"])
    assert (matcher.push("ax"), matcher.push("b"), matcher.flush()) == ("a", "", "")


def test_short_text_is_not_withheld_for_a_long_stop_string() -> None:
    assert run(["a ", "quick", " fox"], ["a very long stop string"]) == (["", "a quick", " fox", ""], False)


def test_tail_that_began_a_stop_string_comes_out_at_the_end() -> None:
    assert run(["end ST"], ["STOP"]) == (["end ", "ST"], False)


@pytest.mark.parametrize("stops", [[], [""], ["", ""]])
def test_no_stop_strings_hold_nothing_back(stops: list[str]) -> None:
    assert run(["abc", "d"], stops) == (["abc", "d", ""], False)


def test_first_complete_wins_and_then_the_longest() -> None:
    assert run(["abcd"], ["abcd", "bc"])[0][0] == "a"
    assert run(["abcd"], ["d", "cd", "bcd"])[0][0] == "a"
