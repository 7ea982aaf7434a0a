from __future__ import annotations

import pytest

from tfjax.lanes.confidence import RETURNS_EVERY, Confidence


def said(*chances: float) -> Confidence:
    confidence = Confidence()
    confidence.said = chances
    return confidence


def test_the_chain_of_what_was_said() -> None:
    assert said(0.9, 0.5).chain() == pytest.approx([0.9, 0.45])


def test_a_window_that_came_back_is_remembered_and_its_word_is_spent() -> None:
    confidence = said(0.9, 0.5, 0.4)
    confidence.settle(2, 1, learns=True)
    assert (confidence.granted, confidence.holds, confidence.said) == (2, 1, ())


@pytest.mark.parametrize(
    ("verified", "accepted", "next_chance"),
    [(0, 0, 0.9), (1, 1, 0.5), (2, 2, 0.4), (3, 3, None), (2, 1, None), (1, 0, None)],
)
def test_the_draft_after_those_that_landed(verified: int, accepted: int, next_chance: float | None) -> None:
    assert said(0.9, 0.5, 0.4).settle(verified, accepted, learns=False) == next_chance


@pytest.mark.parametrize("learns", [True, False])
def test_it_learns_only_when_told_to(learns: bool) -> None:
    confidence = said(0.9)
    confidence.settle(1, 0, learns=learns)
    assert (confidence.calibration.chances([0.9]) != [0.9]) == learns


def test_one_passed_over_returns_now_and_then() -> None:
    confidence = Confidence()
    assert [confidence.pass_over() for _ in range(2 * RETURNS_EVERY)] == [*[False] * (RETURNS_EVERY - 1), True] * 2
