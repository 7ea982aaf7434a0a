from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjax.lanes.calibration import FIRST_WEIGHT, OWN_FIRST_WEIGHT, TRUSTED_AFTER, Calibration, OwnCalibration


def chance(calibration: Calibration | OwnCalibration, sure: float, place: int = 0) -> float:
    return calibration.chances([0.5] * place + [sure])[place]


@pytest.mark.parametrize("sure", [0.0, 0.05, 0.55, 1.0])
def test_a_drafter_is_taken_at_its_word_at_first(sure: float) -> None:
    assert chance(Calibration(), sure) == sure
    assert chance(OwnCalibration(Calibration()), sure) == sure


def test_a_tenth_of_the_scale_learns_from_its_own_drafts() -> None:
    calibration = Calibration()
    calibration.observe([0.95], 0)
    assert chance(calibration, 0.95) == pytest.approx(0.95 - 0.95 / FIRST_WEIGHT)
    assert chance(calibration, 0.99) == pytest.approx(0.99 - 0.95 / FIRST_WEIGHT)
    assert chance(calibration, 0.89) == 0.89


def test_each_of_the_first_places_learns_from_its_own_drafts() -> None:
    calibration = Calibration()
    calibration.observe([0.75, 0.75], 1)
    assert chance(calibration, 0.75, place=0) > 0.75
    assert chance(calibration, 0.75, place=1) < 0.75
    assert chance(calibration, 0.75, place=2) == 0.75


def test_late_places_learn_together() -> None:
    calibration = Calibration()
    calibration.observe([0.5, 0.5, 0.5, 0.75], 3)
    assert chance(calibration, 0.75, place=20) == chance(calibration, 0.75, place=3) < 0.75
    assert chance(calibration, 0.75, place=2) == 0.75


@pytest.mark.parametrize("lands", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("place", [0, 2])
def test_it_finds_how_often_drafts_land(lands: float, place: int) -> None:
    usual = Calibration()
    own = OwnCalibration(usual)
    for number in range(1000):
        own.observe([0.5] * place + [0.85], place + (number % 10 < 10 * lands))
    assert chance(own, 0.85, place) == pytest.approx(lands, abs=0.15)


def test_what_a_window_brings_beyond_expectation() -> None:
    assert Calibration().observe([0.75, 0.5, 0.25], 2) == pytest.approx(0.25 + 0.5 - 0.25)


def test_a_stream_learns_beside_what_all_learn() -> None:
    usual = Calibration()
    bad, good = OwnCalibration(usual), OwnCalibration(usual)
    for _ in range(100):
        bad.observe([0.75], 0)
        good.observe([0.75], 1)
    assert chance(bad, 0.75) < 0.35
    assert chance(good, 0.75) > 0.65
    assert 0.25 < chance(OwnCalibration(usual), 0.75) < 0.75


def test_a_stream_learns_much_at_first() -> None:
    own = OwnCalibration(Calibration())
    own.observe([0.5], 1)
    assert chance(own, 0.5) == pytest.approx(0.5 + 0.5 / FIRST_WEIGHT + 0.5 / OWN_FIRST_WEIGHT)
    assert chance(own, 0.1) == pytest.approx(0.1 + 0.5 / OWN_FIRST_WEIGHT)
    for _ in range(1000):
        own.observe([0.5], 0)
    before = chance(own, 0.1)
    own.observe([0.5], 1)
    assert chance(own, 0.1) - before == pytest.approx(0.05, abs=0.01)


def test_with_nothing_verified_a_stream_becomes_like_the_others() -> None:
    own = OwnCalibration(Calibration())
    own.observe([0.5], 0)
    assert chance(own, 0.1) == pytest.approx(0.1 - 0.5 / OWN_FIRST_WEIGHT)
    own.observe([], 0)
    assert chance(own, 0.1) == pytest.approx(0.1 - 0.95 * 0.5 / OWN_FIRST_WEIGHT)


def test_a_chain_multiplies_chances() -> None:
    assert OwnCalibration(Calibration()).chain([0.9, 0.5, 0.4]) == pytest.approx([0.9, 0.45, 0.18])


def test_the_drafter_is_trusted_once_enough_drafts_were_seen() -> None:
    usual = Calibration()
    own = OwnCalibration(usual)
    for _ in range(TRUSTED_AFTER // 2 - 1):
        own.observe([0.5, 0.5], 2)
    assert not usual.trusted
    own.observe([0.5, 0.5], 1)
    assert usual.trusted


@given(st.lists(st.tuples(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(0, 8)), max_size=60))
def test_chances_stay_chances(windows: Sequence[tuple[list[float], int]]) -> None:
    own = OwnCalibration(Calibration(8))
    for sure, accepted in windows:
        own.observe(sure[: accepted + 1], accepted)
        assert all(0 <= found <= 1 for found in own.chances([0.0, 0.31, 0.5, 0.99, 1.0]))
