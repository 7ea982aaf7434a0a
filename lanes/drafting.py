"""How one stream stands with the drafter."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field

from tfjax.lanes.acceptance import Acceptance, Usual
from tfjax.lanes.aside import StandAside
from tfjax.lanes.confidence import Confidence
from tfjax.lanes.depth import PROBE_EVERY, DepthRule
from tfjax.lanes.waiting import Hope, Luck

RELAXING = 0.05


@dataclass(slots=True)
class Drafting:
    """What was learned of a stream's drafts, and what is under way.

    Attributes:
        most: drafts of its deepest hold.
        usual: how the drafts of all streams land, where depths are decided for all together.
        confidence: what the drafter says of its drafts, and what that is worth here.
        hope: what the host offers, and what that is worth here.
        acceptance: how often drafts land, by depth.
        rule: chooses the depth where holds are not measured.
        stand: keeps the stream from drafting while drafts do not pay.
        chances: for each draft that waits for the next window, the chance that it and all before it land.
        asked: whether the drafter was asked for the next window although the stream stands aside.
        rounds: rounds that verified drafts of the drafter.
    """

    most: int
    usual: InitVar[Usual | None] = None
    confidence: Confidence = field(default_factory=Confidence)
    hope: Hope = field(default_factory=lambda: Hope(Luck()))
    acceptance: Acceptance = field(init=False)
    stand: StandAside = field(default_factory=StandAside)
    rule: DepthRule = field(init=False)
    chances: tuple[float, ...] = ()
    asked: bool = False
    rounds: int = 0

    def __post_init__(self, usual: Usual | None) -> None:
        self.acceptance = Acceptance(usual)
        self.rule = DepthRule(self.acceptance, self.most)

    @property
    def held(self) -> int:
        """Drafts that wait for the next window."""
        return len(self.chances)

    @property
    def probes_deeper(self) -> bool:
        """Whether the next hold may go one draft deeper than pays, to learn how that lands."""
        return self.rounds % PROBE_EVERY == PROBE_EVERY - 1

    def observe(self, drafted: int, accepted: int, *, alone: bool) -> None:
        """A round of the stream ended, with `drafted` of the drafter's drafts verified (0: none).

        A stream that gets none beside others comes closer to what is usual: where its first drafts had no luck it would
        get none else, and never show that they land as well as any.
        """
        self.rounds += drafted > 0
        self.acceptance.observe(drafted, accepted)
        if not (drafted or alone or self.chances or self.stand.aside):
            self.acceptance.relax(RELAXING)
