"""Random requests, cancels, failures, shortages and manners of a drafter: no leaks, and replies equal serial ones."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as effort
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from tests.lanes import test_machine
from tests.lanes.drafted_harness import FLAT_MS, GRID_MS, DraftedRun, settings
from tests.scripted_drafter import ScriptedDrafter

METHODS = ["open", "absorb_prompt", "can_draft", "hold", "read", "absorb"]


class Loop(test_machine.Loop):
    """The machine of the plain loop, with a drafter whose manner, prices and abilities change under way."""

    held_on_target = False

    def __init__(self) -> None:
        super().__init__()
        numbers = settings(lanes=3, context=48, pages=test_machine.PAGES, growth_rows=6, batch_streams=2, first_width=3)
        self.window_ms: dict[int, float] = {}
        self.hold_ms: dict[int, dict[int, float]] = {}
        self.run = DraftedRun(
            numbers,
            "mixed",
            self.proposer,
            target={"held_on_target": self.held_on_target, "lands": self.held_on_target},
            context=40,
            depth=5,
            step_ms=0.02,
        )
        self.run.backend.window_ms = self.window_ms
        self.run.lanes._prices._window_ms = self.window_ms
        self.run.drafter.hold_ms = self.hold_ms
        self.run.lanes._prices.hold._hold_ms = self.hold_ms

    @rule(mode=st.sampled_from(ScriptedDrafter.MODES))
    def changes_its_manner(self, mode: str) -> None:
        self.run.drafter.mode = mode

    @rule()
    def is_timed(self) -> None:
        self.window_ms.update(FLAT_MS)

    @rule()
    def has_prices(self) -> None:
        self.hold_ms.update(GRID_MS)

    @rule(lane=st.integers(0, 3))
    def cannot_draft_for_a_lane(self, lane: int) -> None:
        self.run.drafter.fills = lambda stream: stream.lane == lane

    @rule(method=st.sampled_from(METHODS))
    def drafter_fails_next(self, method: str) -> None:
        self.failures_planned = True
        self.run.drafter.fail_at = {method: {self.run.drafter.calls[method] + 1}}

    @invariant()
    def the_drafter_has_lanes_of_running_streams_only(self) -> None:
        running = {stream.lane for stream in self.run.streams.values() if stream.lane >= 0 and stream.reason is None}
        assert set(self.run.drafter.lanes) <= running
        assert all(stream.reason is None for stream in self.run.drafted._holds)


class OnTarget(Loop):
    held_on_target = True


EFFORT = effort(max_examples=80, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TestLoop = Loop.TestCase
TestLoop.settings = EFFORT
TestOnTarget = OnTarget.TestCase
TestOnTarget.settings = EFFORT


@pytest.mark.slow
@pytest.mark.parametrize("machine", [Loop, OnTarget])
def test_the_loop_for_longer(machine: type[Loop]) -> None:
    run_state_machine_as_test(machine, settings=effort(max_examples=300, stateful_step_count=60, deadline=None))
