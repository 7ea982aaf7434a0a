"""What a drafter's word is worth: how often its drafts land where it is so sure of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

TENTHS = 10
PLACES = 4
FIRST_WEIGHT, STEADY_RATE = 8, 0.02
OWN_FIRST_WEIGHT, OWN_STEADY_RATE = 8, 0.05
STEADY_FROM = round(1 / STEADY_RATE) - FIRST_WEIGHT
RATES = [1 / (FIRST_WEIGHT + seen) for seen in range(STEADY_FROM + 1)]
TRUSTED_AFTER = 32


class Calibration:
    """Learns over all streams how much more or less often drafts land than the drafter says.

    That is kept for tenths of the drafter's scale and for each place in a window; from the fourth on places share
    theirs. A draft counts where all before it in its window landed.

    Attributes:
        seen: drafts that were learned from.
    """

    def __init__(self, depth: int = 64) -> None:
        """`depth` is that of the deepest hold."""
        self.seen = 0
        beyond = [[0.0] * (TENTHS + 1) for _ in range(PLACES)]
        seen = [[0] * (TENTHS + 1) for _ in range(PLACES)]
        places = [min(place, PLACES - 1) for place in range(depth)]
        self._beyond = [beyond[place] for place in places]
        self._seen = [seen[place] for place in places]

    @property
    def trusted(self) -> bool:
        """Whether enough drafts were seen to act upon what the drafter says; it may be sure of the wrong ones."""
        return self.seen >= TRUSTED_AFTER

    def chances(self, confidences: Sequence[float], own: float = 0.0) -> list[float]:
        """For each draft of a hold, the chance that it lands where those before it did; `own` is added to each."""
        return [
            0.0 if (chance := sure + beyond[int(TENTHS * sure)] + own) < 0 else chance if chance < 1 else 1.0
            for sure, beyond in zip(confidences, self._beyond, strict=False)
        ]

    def observe(self, confidences: Sequence[float], accepted: int) -> float:
        """Learn from the verified drafts of a window: the first `accepted` of them landed, and at most one did not.

        Returns how many more landed than was to be expected.
        """
        landed, unexpected = 1.0, 0.0
        self.seen += len(confidences)
        for place, sure in enumerate(confidences):
            if place == accepted:
                landed = 0.0
            tenth, beyond, seen = int(TENTHS * sure), self._beyond[place], self._seen[place]
            error = landed - sure - beyond[tenth]
            unexpected += error
            beyond[tenth] += RATES[seen[tenth]] * error
            if seen[tenth] < STEADY_FROM:
                seen[tenth] += 1
        return unexpected


class OwnCalibration:
    """That of one stream: its text and its temperature may suit the drafter more or less than others'."""

    def __init__(self, usual: Calibration) -> None:
        self._usual = usual
        self._beyond = 0.0
        self._seen = 0

    def chances(self, confidences: Sequence[float]) -> list[float]:
        """For each draft of a hold of this stream, the chance that it lands where those before it did."""
        return self._usual.chances(confidences, self._beyond)

    def chain(self, confidences: Sequence[float]) -> list[float]:
        """The chance of each draft that it and all before it land."""
        return list(accumulate(self.chances(confidences), mul))

    def observe(self, confidences: Sequence[float], accepted: int) -> None:
        """Learn from the verified drafts of a window of this stream, and let the others learn.

        With none verified what sets it apart from them fades, or a stream once thought little of would stay so.
        """
        verified = len(confidences)
        if not verified:
            self._beyond *= 1 - OWN_STEADY_RATE
            return
        rest = (1 - max(OWN_STEADY_RATE, 1 / (OWN_FIRST_WEIGHT + self._seen))) ** verified
        self._seen += verified
        self._beyond = rest * self._beyond + (1 - rest) * self._usual.observe(confidences, accepted) / verified
