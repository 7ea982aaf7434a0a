from __future__ import annotations

import pytest

from tfjax.lanes.calibration import BINS, FIRST_WEIGHT, OWN_FIRST_WEIGHT, Calibration, OwnCalibration


@pytest.mark.parametrize("confidence", [0.0, 0.05, 0.55, 1.0])
def test_a_drafter_is_taken_at_its_word_at_first(confidence: float) -> None:
    assert Calibration().chance(confidence) == confidence
    assert OwnCalibration(Calibration()).chance(confidence) == confidence


def test_a_tenth_of_the_scale_learns_from_its_own_drafts() -> None:
    calibration = Calibration()
    calibration.observe(0.95, False)
    assert calibration.chance(0.95) == pytest.approx(0.95 - 0.95 / FIRST_WEIGHT)
    assert calibration.chance(0.89) == 0.89
    assert calibration.chance(1.0) == pytest.approx(1.0 - 0.95 / FIRST_WEIGHT)


@pytest.mark.parametrize("lands", [0.0, 0.3, 1.0])
def test_it_finds_how_often_drafts_land(lands: float) -> None:
    usual = Calibration()
    own = OwnCalibration(usual)
    for number in range(1000):
        own.observe(0.85, number % 10 < 10 * lands)
    assert own.chance(0.85) == pytest.approx(lands, abs=0.12)
    assert usual.chance(0.85) == pytest.approx(lands, abs=0.12)


def test_a_stream_learns_beside_what_all_learn() -> None:
    usual = Calibration()
    bad, good = OwnCalibration(usual), OwnCalibration(usual)
    for _ in range(100):
        bad.observe(0.75, False)
        good.observe(0.75, True)
    assert bad.chance(0.75) < 0.35
    assert good.chance(0.75) > 0.65
    assert 0.25 < OwnCalibration(usual).chance(0.75) < 0.75


def test_a_stream_learns_faster_at_first() -> None:
    own = OwnCalibration(Calibration())
    own.observe(0.5, True)
    beyond = 0.5 / FIRST_WEIGHT + 0.5 / OWN_FIRST_WEIGHT
    assert own.chance(0.5) == pytest.approx(0.5 + beyond)


def test_chances_stay_chances() -> None:
    own = OwnCalibration(Calibration())
    for _ in range(50):
        own.observe(0.91, True)
    assert own.chance(1.0) == 1.0
    for _ in range(200):
        own.observe(0.99, False)
    assert own.chance(0.0) == 0.0
    assert own.chance(0.9 / BINS) >= 0.0
