"""When a stream stops drafting because its drafts do not pay, and how it finds out that they do again."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfjax.lanes.holds import pays

FIRST_GAP = 64
LONGEST_GAP = 1024


@dataclass(slots=True)
class StandAside:
    """One stream beside its drafter.

    While aside, the stream makes `gap` plain rounds and then arms a probe: from there on every ask drafts, until a
    round verified drafts or two rounds that asked ended without any. One such round is nothing to go by, because a lone
    stream is asked twice a round, once looking ahead. A probe that pays ends standing aside, any other doubles the gap.

    Attributes:
        aside: whether drafts are left alone.
        probing: whether a probe is armed.
        gap: plain rounds from one probe to the next.
        aside_rounds: plain rounds since standing aside, or since the last probe.
        probes: probes that were verified or given up.
        total_aside_rounds: plain rounds that were ever spent aside.
    """

    aside: bool = False
    probing: bool = False
    gap: int = FIRST_GAP
    aside_rounds: int = 0
    probes: int = 0
    total_aside_rounds: int = 0
    _looked_ahead: bool = field(default=False, repr=False)

    def stand(self) -> None:
        """Drafts do not pay: leave them alone from now on."""
        self.aside = True

    def ask(self) -> str:
        """What the next ask gets: "free" (as many drafts as pay), "silent" (none) or "probe" (drafts in any case)."""
        if not self.aside:
            return "free"
        self.probing = self.probing or self.aside_rounds >= self.gap
        return "probe" if self.probing else "silent"

    def silent(self) -> bool:
        """Whether the next ask is sure to be silent even after one more plain round. Changes nothing."""
        return self.aside and not self.probing and self.aside_rounds + 1 < self.gap

    def plain_round(self, asked: bool) -> None:
        """A round without drafts ended; `asked` says that the drafter had been asked for it."""
        if not self.aside:
            return
        self.aside_rounds += 1
        self.total_aside_rounds += 1
        if self.probing and asked:
            if self._looked_ahead:
                self._end_probe()
                self._wait_longer()
            else:
                self._looked_ahead = True

    def drafted_round(self, kept: float, round_ms: float, plain_ms: float) -> bool:
        """A round that verified drafts ended; whether it was a probe that paid.

        Args:
            kept: tokens that it yielded per stream, the one after the drafts counted.
            round_ms: its time with the drafter's steps.
            plain_ms: time of a round without drafts.
        """
        if not self.probing:
            return False
        self._end_probe()
        if pays(kept, round_ms, 1, plain_ms):
            self.aside, self.gap = False, FIRST_GAP
            return True
        self._wait_longer()
        return False

    def _end_probe(self) -> None:
        self.probing = self._looked_ahead = False
        self.aside_rounds = 0
        self.probes += 1

    def _wait_longer(self) -> None:
        self.gap = min(2 * self.gap, LONGEST_GAP)
