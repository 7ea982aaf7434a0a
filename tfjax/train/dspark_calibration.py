"""How far confidences can be believed: temperatures that make them right on average, and the curve that shows it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfjax.train.dspark_acceptance import Rounds

BINS = 10
RANGE = (0.05, 20.0)
"""Between which temperatures lie."""

FEWEST = 50
"""Drafts of a place below which its temperature stays 1."""


def fit_temperatures(rounds: Rounds) -> tuple[float, ...]:
    """For each place of a block the temperature of the least cross entropy on the rounds' drafts.

    Given that the drafts before landed, places are independent of each other; so the product of the first confidences
    is then right, too. Source: DSpark's sequential temperature scaling.
    """
    tried, right = rounds.tried, rounds.right
    found = []
    for place in range(tried.shape[1]):
        chosen = tried[:, place]
        temperature = _best(rounds.confidence[chosen, place], right[chosen, place]) if chosen.sum() >= FEWEST else 1.0
        found.append(round(temperature, 4))
    return tuple(found)


def calibration(rounds: Rounds, temperatures: tuple[float, ...]) -> dict[str, Any]:
    """How confidences compare with what landed.

    Returns:
        curve: for each tenth of the range with drafts in it, mean confidence, share that landed, drafts.
        error: mean distance of the two, weighted by drafts (the expected calibration error).
    """
    tried = rounds.tried
    confidence = 1 / (1 + np.exp(-rounds.confidence.astype(np.float64) / np.array(temperatures)))
    said, landed = confidence[tried], rounds.right[tried]
    place = np.minimum((said * BINS).astype(int), BINS - 1)
    curve = []
    for number in range(BINS):
        inside = place == number
        if inside.any():
            curve.append([float(said[inside].mean()), float(landed[inside].mean()), int(inside.sum())])
    error = sum(abs(mean - share) * count for mean, share, count in curve) / max(1, len(said))
    return {
        "curve": [[round(mean, 4), round(share, 4), count] for mean, share, count in curve],
        "error": round(error, 4),
    }


def _best(raw: NDArray[np.float32], right: NDArray[np.bool_], steps: int = 60) -> float:
    """Golden-section search over the logarithm; the cross entropy has one minimum there."""
    values = raw.astype(np.float64)

    def cross(log_temperature: float) -> float:
        scaled = values * np.exp(-log_temperature)
        return float(np.mean(np.logaddexp(0, scaled) - right * scaled))

    low, high = np.log(RANGE[0]), np.log(RANGE[1])
    ratio = (np.sqrt(5) - 1) / 2
    for _ in range(steps):
        left, middle = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, middle) if cross(left) < cross(middle) else (left, high)
    return float(np.exp((low + high) / 2))
