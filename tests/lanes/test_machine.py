"""Random requests, cancels, failures and shortages: nothing leaks, and every reply equals its serial run."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as effort
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule, run_state_machine_as_test

from tests.lanes.harness import Run, settings
from tests.stubs import EOS, VOCAB, ScriptedProposer, hashed, listed, looping, penalised, serial
from tfjax.lanes.copy_drafts import CopyDrafts
from tfjax.lanes.proposer import Proposer
from tfjax.lanes.roster import Refused
from tfjax.lanes.stream import Request, Stream

PAGES = 16
SCRIPTS = [
    hashed(1, VOCAB),
    looping(4, 2, slip=9),
    listed([1, 2, 3, EOS], 3),
    penalised(looping(2, 4), 3),
    hashed(5, 3),
]
METHODS = ["prefill_begin", "prefill_step", "first", "verify", "read", "keep"]


class Loop(RuleBasedStateMachine):
    streams = Bundle("streams")

    def __init__(self) -> None:
        super().__init__()
        self.modes: dict[str, str] = {}
        numbers = settings(lanes=3, context=48, pages=PAGES, growth_rows=6, batch_streams=2, first_width=3)
        self.run = Run(numbers, self.proposer)
        self.failures_planned = False
        self.compared: set[str] = set()

    def proposer(self, request: Request) -> Proposer:
        mode = self.modes[request.id]
        return CopyDrafts(4, first_width=3) if mode == "copy" else ScriptedProposer(request, mode)

    @rule(
        target=streams,
        script=st.sampled_from(SCRIPTS),
        prompt=st.lists(st.integers(0, 4), min_size=1, max_size=40),
        max_new=st.integers(1, 40),
        drafts=st.booleans(),
        mode=st.sampled_from([*ScriptedProposer.MODES, "copy"]),
    )
    def admit(self, script: object, prompt: list[int], max_new: int, drafts: bool, mode: str) -> object:
        name = f"r{len(self.modes)}"
        self.modes[name] = mode
        request = Request(name, tuple(prompt), max_new, frozenset({EOS}), drafts, script)
        try:
            self.run.admit(request)
        except Refused:
            return multiple()
        return self.run.streams[name]

    @rule(stream=streams)
    def cancel(self, stream: Stream) -> None:
        self.run.lanes.cancel(stream)

    @rule(rounds=st.integers(1, 12))
    def go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            self.run.lanes.round()

    @rule(method=st.sampled_from(METHODS))
    def fail_next(self, method: str) -> None:
        self.failures_planned = True
        self.run.backend.fail_at = {method: {self.run.backend.calls[method] + 1}}

    @rule(stream=streams)
    def see_to_its_end(self, stream: Stream) -> None:
        for _ in range(400):
            if stream.reason is not None:
                break
            self.run.lanes.round()
        assert stream.reason is not None

    @invariant()
    def pages_and_lanes_are_held_by_running_streams_only(self) -> None:
        running = [stream for stream in self.run.streams.values() if stream.lane >= 0 and stream.reason is None]
        pages = [page for stream in running for page in stream.pages]
        assert len(set(pages)) == len(pages) == self.run.lanes.pages_held <= PAGES
        assert len({stream.lane for stream in running}) == len(running) == self.run.lanes.running
        assert set(self.run.backend.lanes) <= {stream.lane for stream in running}

    @invariant()
    def replies_equal_their_serial_run(self) -> None:
        finished = self.run.recorder.finished
        for name in finished.keys() - self.compared:
            stream = finished[name]
            tokens, reason, logprobs = self.run.recorder.reply(name)
            expected = serial(stream.request, 48)
            assert tokens == stream.context[len(stream.request.prompt) :]
            if reason in {"stop", "length"}:
                assert (tokens, reason, logprobs) == expected
            else:
                assert (tokens, logprobs) == (expected[0][: len(tokens)], expected[2][: len(tokens)])
                assert reason == "cancelled" or self.explained(stream)
        self.compared = set(finished)

    def explained(self, stream: Stream) -> bool:
        return "the cache is full" in str(stream.error) or (self.failures_planned and " call " in str(stream.error))

    def teardown(self) -> None:
        self.run.finish()
        assert all(stream.reason is not None for stream in self.run.streams.values())
        self.replies_equal_their_serial_run()


TestLoop = Loop.TestCase
TestLoop.settings = effort(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.slow
def test_the_loop_for_longer() -> None:
    run_state_machine_as_test(Loop, settings=effort(max_examples=400, stateful_step_count=60, deadline=None))
