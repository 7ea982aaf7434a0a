"""Runs requests through the loop with a scripted drafter behind it, and compares them with the serial oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.lanes.harness import Run, settings
from tests.scripted_drafter import ScriptedDrafter
from tests.stubs import FakeClock, Recorder, ScriptedBackend
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.loop import Lanes
from tfjax.lanes.proposer import Proposer, Silent
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request, Stream

FLAT_MS = {2: 30.0, 4: 31.0, 8: 32.0, 16: 33.0, 32: 34.0, 64: 35.0}
"""Windows whose rows cost next to nothing."""
GRID_MS = {1: {1: 1.0, 8: 3.0}, 8: {1: 2.0, 8: 6.0}}
"""A cheap drafter."""


def silent(request: Request) -> Proposer:
    return Silent()


class DraftedRun(Run):
    """A loop on a scripted target and drafter, and what came of it. Host drafts only where `proposer` makes them."""

    def __init__(
        self,
        settings: Settings,
        mode: str = "perfect",
        proposer: Callable[[Request], Proposer] | None = silent,
        *,
        target: Mapping[str, Any] | None = None,
        clock: FakeClock | None = None,
        **drafter: Any,
    ) -> None:
        self.clock = clock or FakeClock()
        self.backend = ScriptedBackend(
            **{"pages": settings.pages, "page_rows": settings.page_rows, "clock": self.clock, **(target or {})}
        )
        self.drafter = ScriptedDrafter(self.backend, mode, **drafter)
        self.recorder = Recorder()
        self.settings = settings
        self.drafted = Drafted(self.backend, self.drafter, settings.vocab_size)
        self.lanes = Lanes(self.drafted, self.clock, settings, self.recorder, proposer)
        self.streams: dict[str, Stream] = {}

    def check_no_leak(self) -> None:
        super().check_no_leak()
        assert not self.drafter.lanes
        assert not self.drafted._holds
        assert not self.drafted._uncommitted


def complete(
    requests: Sequence[Request],
    numbers: Settings | None = None,
    mode: str = "perfect",
    proposer: Callable[[Request], Proposer] | None = silent,
    **more: Any,
) -> DraftedRun:
    """Run requests to their end, all admitted at once, and compare each with the oracle."""
    run = DraftedRun(numbers or settings(), mode, proposer, **more)
    run.admit(*requests)
    run.finish()
    run.check_serial(*requests)
    return run
