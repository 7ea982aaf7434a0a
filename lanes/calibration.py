"""What a drafter's word is worth: how often its drafts land where it is so sure of them."""

from __future__ import annotations

BINS = 10
FIRST_WEIGHT, STEADY_RATE = 8, 0.02
OWN_FIRST_WEIGHT, OWN_STEADY_RATE = 8, 0.05


class Calibration:
    """Learns over all streams how much more or less often drafts land than the drafter says, for tenths of its scale.

    At first it is taken at its word. A draft counts where all before it in its window landed.
    """

    def __init__(self) -> None:
        self._beyond = [0.0] * BINS
        self._seen = [0] * BINS

    def chance(self, confidence: float) -> float:
        """Chance that a draft lands where those before it did, given how sure the drafter is."""
        return confidence + self._beyond[_bin(confidence)]

    def observe(self, confidence: float, landed: bool) -> None:
        """Learn from one verified draft."""
        place = _bin(confidence)
        rate = max(STEADY_RATE, 1 / (FIRST_WEIGHT + self._seen[place]))
        self._seen[place] += 1
        self._beyond[place] += rate * (landed - confidence - self._beyond[place])


class OwnCalibration:
    """That of one stream: its text and its temperature may suit the drafter more or less than others'."""

    def __init__(self, usual: Calibration) -> None:
        self._usual = usual
        self._beyond = 0.0
        self._seen = 0

    def chance(self, confidence: float) -> float:
        """Chance that a draft of this stream lands where those before it did."""
        return min(1.0, max(0.0, self._usual.chance(confidence) + self._beyond))

    def observe(self, confidence: float, landed: bool) -> None:
        """Learn from one verified draft of this stream, and let the others learn."""
        rate = max(OWN_STEADY_RATE, 1 / (OWN_FIRST_WEIGHT + self._seen))
        self._seen += 1
        self._beyond += rate * (landed - self._usual.chance(confidence) - self._beyond)
        self._usual.observe(confidence, landed)


def _bin(confidence: float) -> int:
    return min(BINS - 1, max(0, int(confidence * BINS)))
