"""What fails on the drafter's path ends the streams that it was for, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lanes.drafted_harness import FLAT_MS, GRID_MS, DraftedRun, settings
from tests.lanes.test_drafted import PRICED, prepared, window
from tests.lanes.test_oracle import requests
from tests.stubs import serial
from tfjax.lanes.asking import Asking
from tfjax.lanes.drafter import Ask
from tfjax.lanes.planning import Planner


def failing(method: str, call: int, company: int, drafts: int, held_on_target: bool = False) -> DraftedRun:
    """Streams of which the first `drafts` draft; one call of the drafter fails."""
    target = {"window_ms": FLAT_MS, "held_on_target": held_on_target, "lands": held_on_target}
    run = DraftedRun(settings(), "mixed", target=target, hold_ms=GRID_MS, fail_at={method: {call}})
    asks = requests(company, 60)[:drafts] + requests(company, 60, drafts=False)[drafts:]
    run.admit(*asks)
    run.finish()
    for ask in asks:
        tokens, reason, _ = run.recorder.reply(ask.id)
        if reason == "error":
            assert f"drafter {method} call {call}" in str(run.streams[ask.id].error)
            assert tokens == serial(ask)[0][: len(tokens)]
        else:
            run.check_serial(ask)
    return run


def ended(run: DraftedRun) -> list[str]:
    return [name for name, stream in run.streams.items() if stream.reason == "error"]


@pytest.mark.parametrize("method", ["open", "absorb_prompt", "absorb", "can_draft", "hold", "read"])
@pytest.mark.parametrize("call", [1, 2, 5, 9, 14, 20])
@pytest.mark.parametrize("company", [1, 3])
@pytest.mark.parametrize("held", [False, True])
def test_a_failed_call_releases_both_sides_and_spares_the_others(
    method: str, call: int, company: int, held: bool
) -> None:
    run = failing(method, call, company, company, held)
    if run.drafter.calls[method] >= call:
        assert ended(run) or (held and run.drafter.failed_for)
    for stream, read in run.drafter.failed_for:
        done = held and stream.last_round <= read + 1
        assert stream.reason == "error" or done, "only a reply that ended in the forward under way is past failing"
    if method in {"open", "absorb_prompt", "absorb", "can_draft"}:
        assert len(ended(run)) <= 1, "it was for one stream"


@pytest.mark.parametrize("method", ["absorb", "can_draft", "hold", "read"])
@pytest.mark.parametrize("call", [2, 4, 8, 11])
def test_streams_without_drafts_are_not_harmed(method: str, call: int) -> None:
    run = failing(method, call, 3, 2)
    assert ended(run)
    assert "r2" not in ended(run)


def test_a_failed_read_ends_its_streams_after_the_round_that_it_was_for() -> None:
    drafted, target, drafter, streams = prepared(drafts=[True, True, False], fail_at={"read": {1}})
    drafted.draft([], [], [Ask(streams[0], 2)])
    windows = [window(streams[0], 2), window(streams[1]), window(streams[2])]
    results = drafted.read(drafted.verify(windows))
    for stream, result in zip(streams, results, strict=True):
        assert result.draws[0] == serial(stream.request)[0][1]
    assert target.forwards[0][0].drafts == (streams[0].context[-1],) * 2
    failed = drafted.draft([], [], [])
    assert list(failed) == [streams[0]]
    assert drafted.draft([], [], []) == {}
    assert drafter.calls["read"] == 1


def test_a_drafter_that_cannot_release_does_no_harm() -> None:
    run = DraftedRun(settings(lanes=1), "mixed", fail_at={"release": {1}}, **PRICED)
    asks = requests(1, 30)
    run.admit(*asks)
    while run.lanes.round():
        pass
    run.check_serial(*asks)
    assert run.lanes.idle
    assert run.lanes.pages_held == 0


def test_after_a_failed_hold_new_requests_are_served() -> None:
    run = failing("hold", 3, 2, 2)
    ask = requests(4)[3]
    run.admit(ask)
    run.finish()
    run.check_serial(ask)
    assert run.streams["r3"].counts.drafted


@pytest.mark.parametrize(("kind", "method"), [(Asking, "prepare"), (Planner, "windows")])
@pytest.mark.parametrize("call", [2, 3, 4, 5, 8, 9])
def test_a_slip_within_the_loop_ends_the_streams_of_its_round(
    monkeypatch: pytest.MonkeyPatch, kind: Any, method: str, call: int
) -> None:
    """Drafts are asked for before a round's windows are made, and again before it is committed."""
    real, lives = getattr(kind, method), []

    def slips(self: Any, live: Any) -> Any:
        lives.append([stream.request.id for stream in live])
        if len(lives) == call:
            raise RuntimeError("a slip")
        return real(self, live)

    monkeypatch.setattr(kind, method, slips)
    run = DraftedRun(settings(), "mixed", **PRICED)
    asks = requests(3, 60)
    run.admit(*asks)
    run.finish()
    assert ended(run) == lives[call - 1]
    late = requests(4)[3]
    run.admit(late)
    run.finish()
    run.check_serial(late, *[ask for ask in asks if ask.id not in ended(run)])
    for ask in asks:
        if ask.id in ended(run):
            assert run.recorder.reply(ask.id)[0] == serial(ask)[0][: run.streams[ask.id].emitted]
            assert "a slip" in str(run.streams[ask.id].error)
