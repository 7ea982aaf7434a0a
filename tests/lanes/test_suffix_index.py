from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tfjax.lanes.suffix_index import GRAM, MOST_CANDIDATES, MOST_MATCH, SuffixIndex


def agreement(text: list[int], place: int) -> int:
    length = 0
    while length < min(place, MOST_MATCH) and text[place - 1 - length] == text[-1 - length]:
        length += 1
    return length


def brute_force(text: list[int]) -> tuple[int, int]:
    """(end, length) by looking at every place."""
    places = [place for place in range(GRAM, len(text)) if agreement(text, place) >= GRAM][-MOST_CANDIDATES:]
    if len(text) < GRAM or not places:
        return len(text), 0
    best = max(places, key=lambda place: (agreement(text, place), place))
    return best, agreement(text, best)


few = st.lists(st.integers(0, 5), max_size=9)
texts = st.one_of(
    st.lists(st.integers(0, 1), max_size=700),
    st.lists(st.integers(0, 3), max_size=400),
    st.builds(lambda head, period, times, tail: head + period * times + tail, few, few, st.integers(0, 80), few),
)


@settings(deadline=None)
@given(texts, st.integers(1, 50))
def test_longest_equals_brute_force(text: list[int], step: int) -> None:
    index = SuffixIndex()
    for start in range(0, len(text), step):
        index.extend(text[start : start + step])
        index.longest()
    match = index.longest()
    assert (match.end, match.length) == brute_force(text)


@settings(deadline=None)
@given(texts, st.integers(0, 5))
def test_no_place_agrees_on_more_than_the_bound_even_after_one_token(text: list[int], token: int) -> None:
    index = SuffixIndex()
    index.extend(text)
    bound = index.longest().bound
    assert bound >= max([agreement(text, place) for place in range(1, len(text))], default=0)
    index.extend([token])
    assert index.longest().length <= bound + 1


def test_the_latest_of_equally_long_matches_wins() -> None:
    index = SuffixIndex()
    index.extend([1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3])
    assert index.copy(index.longest(), 1) == (8,)


def test_the_longest_match_wins_over_a_later_one() -> None:
    index = SuffixIndex()
    index.extend([9, 1, 2, 3, 7, 1, 2, 3, 8, 9, 1, 2, 3])
    assert index.copy(index.longest(), 1) == (7,)


def test_a_match_saturates() -> None:
    index = SuffixIndex()
    index.extend([1] * 500)
    assert index.longest().length == MOST_MATCH
    assert index.longest().end == 499


def test_a_copy_goes_on_past_the_end_in_the_same_period() -> None:
    index = SuffixIndex()
    index.extend([1, 2, 3, 1, 2, 3, 1, 2, 3, 1])
    assert index.copy(index.longest(), 8) == (2, 3, 1, 2, 3, 1, 2, 3)


def test_only_the_latest_candidates_are_examined_and_then_the_bound_is_open() -> None:
    index = SuffixIndex()
    far = [8, 9, 1, 1, 1]
    index.extend([*far, *([5, 1, 1, 1, 6] * (MOST_CANDIDATES + 5)), *far])
    assert index.longest().length == GRAM
    assert index.longest().bound == MOST_MATCH


def test_short_texts_have_no_match() -> None:
    index = SuffixIndex()
    for _ in range(3):
        assert index.longest().length == 0
        index.extend([1])
    assert index.longest().length == 0
    index.extend([1])
    assert index.longest().length == 3
