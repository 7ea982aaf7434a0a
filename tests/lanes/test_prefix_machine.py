"""Random requests that share beginnings: what the loop's machine promises, with prompts kept and pages short."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as effort
from hypothesis import strategies as st
from hypothesis.stateful import invariant, multiple, rule, run_state_machine_as_test

from tests.lanes.harness import Run, settings
from tests.lanes.prefix_checks import PrefixChecks
from tests.lanes.test_machine import PAGES, SCRIPTS, Loop
from tests.stubs import EOS, ScriptedProposer
from tfjax.lanes.roster import Refused
from tfjax.lanes.stream import Request, Stream


class ReusingLoop(Loop):
    """The loop's machine on a cache that keeps prompts."""

    def __init__(self) -> None:
        super().__init__()
        numbers = settings(
            lanes=3, context=48, pages=PAGES, prompt_pages=6, growth_rows=6, batch_streams=2, first_width=3
        )
        self.run = Run(numbers, self.proposer)
        self.checks = PrefixChecks(self.run)

    @rule(
        target=Loop.streams,
        earlier=Loop.streams,
        share=st.integers(1, 47),
        more=st.lists(st.integers(0, 4), max_size=6),
        script=st.sampled_from(SCRIPTS),
        max_new=st.integers(1, 30),
        drafts=st.booleans(),
        mode=st.sampled_from([*ScriptedProposer.MODES, "copy"]),
        salt=st.sampled_from(["", "", "other"]),
    )
    def go_on_from(
        self,
        earlier: Stream,
        share: int,
        more: list[int],
        script: object,
        max_new: int,
        drafts: bool,
        mode: str,
        salt: str,
    ) -> object:
        """A prompt that begins with what another stream's context began with."""
        name = f"r{len(self.modes)}"
        self.modes[name] = mode
        prompt = (*earlier.context[:share], *more)
        try:
            self.run.admit(Request(name, prompt, max_new, frozenset({EOS}), drafts, script, salt=salt))
        except Refused:
            return multiple()
        return self.run.streams[name]

    @invariant()
    def pages_and_lanes_are_held_by_running_streams_only(self) -> None:
        running = [stream for stream in self.run.streams.values() if stream.lane >= 0 and stream.reason is None]
        assert len({page for stream in running for page in stream.pages}) == self.run.lanes.pages_held <= PAGES
        assert len({stream.lane for stream in running}) == len(running) == self.run.lanes.running
        assert set(self.run.backend.lanes) <= {stream.lane for stream in running}

    @invariant()
    def pages_and_blocks_are_in_order(self) -> None:
        self.checks.check(self.run.streams.values())


TestReusingLoop = ReusingLoop.TestCase
TestReusingLoop.settings = effort(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.slow
def test_the_reusing_loop_for_longer() -> None:
    run_state_machine_as_test(ReusingLoop, settings=effort(max_examples=400, stateful_step_count=60, deadline=None))
