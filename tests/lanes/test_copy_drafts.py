from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfjax.lanes.copy_drafts import CopyDrafts

PHRASE = [1, 2, 3, 4, 5, 6]
PROMPT = [*PHRASE, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, *PHRASE]
"""Ends with a phrase that occurred before; 7, 8, 9... followed it there."""


def copier(prompt: list[int] = PROMPT, **options: int) -> CopyDrafts:
    drafts = CopyDrafts(**options)
    drafts.extend(prompt)
    return drafts


def judged(drafts: CopyDrafts, landed: bool, drafted: int = 1) -> None:
    """Have a proposal land or fail, and then repeat the phrase, so that there is something to copy again."""
    token = drafts.propose(31).tokens[0]
    drafts.observe([token if landed else token + 1], drafted, alone=True)
    drafts.extend(PHRASE)


def fail(drafts: CopyDrafts, times: int) -> None:
    for _ in range(times):
        judged(drafts, landed=False)


def test_what_followed_the_longest_match_is_proposed() -> None:
    assert copier(first_width=3).propose(31).tokens == (7, 8, 9)


@pytest.mark.parametrize(("least_match", "proposed"), [(6, True), (7, False), (4, True)])
def test_a_match_must_be_long_enough(least_match: int, proposed: bool) -> None:
    assert bool(copier(least_match=least_match).propose(31).tokens) is proposed


@pytest.mark.parametrize("most", [-1, 0, 1, 2])
def test_no_more_than_asked_for(most: int) -> None:
    assert len(copier(first_width=5).propose(most).tokens) == max(0, most)


def test_chances_are_a_power_of_094() -> None:
    assert copier(first_width=3).propose(31).chances == pytest.approx((0.94, 0.94**2, 0.94**3))


def test_chances_halve_with_each_failure_and_a_success_restores_them() -> None:
    drafts = copier()
    fail(drafts, 2)
    assert drafts.propose(31).chances == pytest.approx((0.94 / 4,))
    judged(drafts, landed=True)
    assert drafts.propose(31).chances[0] == pytest.approx(0.94)


def test_four_failures_make_it_silent_for_sixteen_asks() -> None:
    drafts = copier()
    fail(drafts, 4)
    assert [len(drafts.propose(31).tokens) for _ in range(17)] == [0] * 16 + [1]


def test_it_falls_silent_again() -> None:
    drafts = copier()
    for _ in range(3):
        fail(drafts, 4)
        assert [len(drafts.propose(31).tokens) for _ in range(16)] == [0] * 16


def test_only_failures_in_a_row_count() -> None:
    drafts = copier()
    fail(drafts, 3)
    judged(drafts, landed=True)
    fail(drafts, 3)
    assert drafts.propose(31).tokens


def test_asks_that_found_nothing_are_no_failures() -> None:
    drafts = copier(list(range(40)))
    for number in range(41, 50):
        assert not drafts.propose(31).tokens
        drafts.observe([number], 0, alone=True)
    drafts.extend(PROMPT)
    assert drafts.propose(31).chances == pytest.approx((0.94,))


def test_a_proposal_that_was_not_verified_is_judged_by_what_came() -> None:
    drafts = copier()
    judged(drafts, landed=False, drafted=0)
    assert drafts.propose(31).chances == pytest.approx((0.47,))
    judged(drafts, landed=True, drafted=0)
    assert drafts.propose(31).chances == pytest.approx((0.94,))


def widths(results: list[tuple[str, bool]], **options: int) -> list[int]:
    """Widths proposed after each result; the text repeats for ever, so there is always something to copy."""
    drafts = copier([1, 2] * 40, **options)
    seen = []
    for result, alone in results:
        tokens = drafts.propose(99).tokens
        match result:
            case "whole":
                drafts.observe([*tokens, 40], len(tokens), alone)
            case "part":
                drafts.observe([*tokens[:-1], 40], len(tokens), alone)
            case "refused":
                drafts.observe([tokens[0]], 0, alone)
        drafts.extend([1, 2] * 40)
        seen.append(len(drafts.propose(99).tokens))
        drafts.observe([1, 2], 0, alone)
        drafts._width = seen[-1]
    return seen


def test_alone_a_copy_that_lands_whole_widens() -> None:
    assert widths([("whole", True)] * 6) == [3, 7, 15, 31, 31, 31]
    assert widths([("whole", True)] * 3, first_width=3) == [7, 15, 31]
    assert widths([("whole", True)] * 4, most_width=10) == [3, 7, 10, 10]


@pytest.mark.parametrize("setback", [("part", True), ("refused", True), ("whole", False)])
def test_any_other_result_returns_to_the_first_width(setback: tuple[str, bool]) -> None:
    assert widths([("whole", True), ("whole", True), setback, ("whole", True)]) == [3, 7, 1, 3]


def test_the_first_width_is_never_above_the_most() -> None:
    assert len(copier(first_width=8, most_width=4).propose(31).tokens) == 4


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=120), st.integers(3, 8), st.data())
def test_running_ahead_loses_no_proposal(text: list[int], least_match: int, data: st.DataObject) -> None:
    """One copier passes unread tokens whenever it says so, its twin is asked each time: both propose the same."""
    ahead, twin = CopyDrafts(least_match), CopyDrafts(least_match)
    for drafts in (ahead, twin):
        drafts.extend(text)
    for _ in range(60):
        token = data.draw(st.integers(0, 2))
        passed = ahead.pass_unread()
        for drafts in (ahead, twin):
            drafts.observe([token], 0, alone=True)
        expected = twin.propose(31)
        assert (not expected.tokens) if passed else ahead.propose(31) == expected
