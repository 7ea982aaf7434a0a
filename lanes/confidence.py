"""What the drafter says of one stream's drafts, and what that is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tfjax.lanes.calibration import Calibration, OwnCalibration
from tfjax.lanes.sureness import Sureness

RETURNS_EVERY = 8


@dataclass(slots=True)
class Confidence:
    """Of one stream, from hold to hold.

    Attributes:
        calibration: how often its drafts land where the drafter is so sure of them.
        sureness: what is left of its holds once their drafts were weighed.
        said: for each draft that waits for the next window, how sure the drafter is of it, once it said so.
        granted: drafts that were verified of the last hold of which it said so; None before any.
        passed_over: rounds since it was last asked for drafts while other streams' drafts paid.
        holds: holds of which it said so.
    """

    calibration: OwnCalibration = field(default_factory=lambda: OwnCalibration(Calibration()))
    sureness: Sureness = field(default_factory=Sureness)
    said: Sequence[float] = ()
    granted: int | None = None
    passed_over: int = 0
    holds: int = 0

    def pass_over(self) -> bool:
        """Other streams' drafts pay and its own do not; whether one is asked for all the same, to see how it stands."""
        self.passed_over = (self.passed_over + 1) % RETURNS_EVERY
        return not self.passed_over

    def chain(self) -> list[float]:
        """For each draft that waits, the chance that it and all before it land."""
        return self.calibration.chain(self.said)

    def settle(self, verified: int, accepted: int, learns: bool) -> float | None:
        """A window with the first `verified` of the drafts came back, and `accepted` of them landed.

        Returns the chance of the draft after those where all of them landed, if there is one.
        """
        said, self.said = self.said, ()
        self.granted = verified
        self.holds += 1
        if learns:
            self.calibration.observe(said[: min(verified, accepted + 1)], accepted)
        return self.calibration.chances(said)[verified] if accepted == verified < len(said) else None
