"""Temperatures that make confidences right, and the curve that shows how right they are."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tfjax.train.dspark_acceptance import Rounds
from tfjax.train.dspark_calibration import FEWEST, calibration, fit_temperatures


def rounds(factors: tuple[float, ...], count: int = 6000, seed: int = 0) -> Rounds:
    """Drafts that land with the chance sigmoid(raw), where `factors` times raw is what the head says."""
    random = np.random.default_rng(seed)
    raw = random.normal(1, 1.5, (count, len(factors)))
    lands: NDArray[np.bool_] = random.random(raw.shape) < 1 / (1 + np.exp(-raw))
    drafts = np.cumprod(lands, 1).sum(1).astype(np.int32)
    most = np.full(count, len(factors), np.int32)
    return Rounds(drafts, most, (raw * factors).astype(np.float32), int(drafts.sum()) + count)


def test_temperatures_undo_what_a_head_overstates() -> None:
    assert fit_temperatures(rounds((2.0, 1.0, 0.5))) == pytest.approx((2.0, 1.0, 0.5), rel=0.12)


def test_a_place_with_few_drafts_stays_as_it_is() -> None:
    few = rounds((4.0, 4.0), count=2 * FEWEST)
    drafts = np.minimum(few.drafts, np.arange(2 * FEWEST) < FEWEST - 1)
    only = Rounds(drafts.astype(np.int32), few.most, few.confidence, few.tokens)
    assert only.tried[:, 1].sum() < FEWEST
    first, second = fit_temperatures(only)
    assert second == 1.0
    assert first != 1.0


def test_the_error_is_small_where_confidences_are_right() -> None:
    overstated = rounds((4.0, 4.0))
    before, after = (calibration(overstated, temperatures) for temperatures in ((1.0, 1.0), (4.0, 4.0)))
    assert after["error"] < 0.03 < 0.08 < before["error"]


def test_the_curve_counts_each_draft_once() -> None:
    found = rounds((1.0, 1.0, 1.0))
    curve = calibration(found, (1.0,) * 3)["curve"]
    assert sum(count for _, _, count in curve) == found.tried.sum()
    assert all(low <= mean <= low + 0.1 for low, (mean, _, _) in zip(np.arange(0, 1, 0.1), curve, strict=True))
    assert [share for _, share, _ in curve] == sorted(share for _, share, _ in curve)


def test_no_rounds_have_no_curve() -> None:
    none = Rounds(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros((0, 2), np.float32), 0)
    assert calibration(none, (1.0, 1.0)) == {"curve": [], "error": 0.0}
    assert fit_temperatures(none) == (1.0, 1.0)
