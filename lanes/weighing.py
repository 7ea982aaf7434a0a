"""Weighs the drafts that wait for their windows by how sure the drafter is of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from tfjax.lanes.calibration import Calibration, OwnCalibration
from tfjax.lanes.confidence import Confidence
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.drafting import Drafting
from tfjax.lanes.stream import Stream
from tfjax.lanes.sureness import Sureness

LEARNS_FROM = 8


class Weighing:
    """What confidences are worth, over all streams.

    Many streams say much in a round, so about `LEARNS_FROM` of them are learned from.
    """

    def __init__(self, drafted: Drafted) -> None:
        self._drafted = drafted
        self._calibration = Calibration(drafted.drafter.depth)
        self._sureness = Sureness()
        self._untried: list[tuple[Confidence, Sequence[float]]] = []
        self._learns_every = 1

    def open(self) -> Confidence:
        """For a new stream."""
        return Confidence(OwnCalibration(self._calibration), Sureness(self._sureness))

    def weigh(self, live: Sequence[Stream]) -> None:
        """Take the drafter's word for drafts that wait, calibrated, in place of how drafts landed before.

        Drafts that it did not make have no chance. Until it is known what its word is worth, nothing is weighed.
        """
        waiting = {
            stream: drafting
            for stream in live
            if (drafting := stream.drafting) and drafting.chances and not drafting.confidence.said
        }
        self._learns_every = max(1, len(waiting) // LEARNS_FROM)
        trusted = self._calibration.trusted
        if trusted and self._untried:
            self._try()
        for stream, said in _sound(self._drafted.confidences(list(waiting))).items():
            drafting = waiting[stream]
            held, confidence = len(drafting.chances), drafting.confidence
            confidence.said = said[:held]
            if not trusted:
                self._untried.append((confidence, confidence.said))
                continue
            chances = confidence.chain()
            if not drafting.stand.probing:
                drafting.chances = (*chances, *[0.0] * (held - len(chances)))
            if self._learns_from(confidence):
                confidence.sureness.observe(chances)

    def learn(self, drafting: Drafting, held: int, accepted: int) -> None:
        """Drafts that landed, and the first that missed, say how sure the drafter may be.

        Where all that were verified landed, how sure it is of the next one stands for how that would have done: else
        only the surest drafts would ever be seen, and all would seem to land.
        """
        confidence = drafting.confidence
        if not confidence.said:
            return
        next_chance = confidence.settle(held, accepted, self._learns_from(confidence))
        if next_chance is not None and self._calibration.trusted:
            drafting.acceptance.expect(held + 1, next_chance)

    def _try(self) -> None:
        """See what would have been left of the holds before the drafter was trusted, now that its word was tried."""
        for confidence, said in self._untried:
            confidence.sureness.observe(confidence.calibration.chain(said))
        self._untried.clear()

    def _learns_from(self, confidence: Confidence) -> bool:
        return confidence.holds % self._learns_every == 0


def _sound(said: Mapping[Stream, Sequence[float]]) -> Mapping[Stream, Sequence[float]]:
    """What was said where it can be. All at once is looked at first, since nothing else is to be expected."""
    if not said or _are_chances(list(chain.from_iterable(said.values()))):
        return said
    return {stream: confidences for stream, confidences in said.items() if _are_chances(confidences)}


def _are_chances(said: Sequence[float]) -> bool:
    """Whether all are within [0, 1]; the sum is not where one of them is no number."""
    return min(said) >= 0 and max(said) <= 1 and sum(said) <= len(said)
