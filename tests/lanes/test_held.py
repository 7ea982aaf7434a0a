"""Drafts that stay on the device: the loop decides alike whether or not the host gets to see them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lanes.drafted_harness import GRID_MS, DraftedRun, complete, settings
from tests.lanes.test_oracle import requests
from tests.scripted_drafter import ScriptedDrafter
from tfjax.lanes.copy_drafts import copies_for
from tfjax.lanes.stream import Request, Stream

WINDOW_MS = {2: 23.0, 4: 26.0, 8: 31.0, 16: 44.0, 32: 65.0, 64: 110.0}


def run_with(held_on_target: bool, mode: str, company: int, **more: Any) -> DraftedRun:
    target = {"window_ms": WINDOW_MS, "held_on_target": held_on_target}
    proposer = lambda request: copies_for(2, 8, request)  # noqa: E731
    return complete(requests(company, 80), settings(), mode, proposer, target=target, hold_ms=GRID_MS, **more)


@pytest.mark.parametrize("mode", ScriptedDrafter.MODES)
@pytest.mark.parametrize("company", [1, 3])
def test_the_flag_changes_who_reads_and_nothing_else(mode: str, company: int) -> None:
    here, there = run_with(False, mode, company), run_with(True, mode, company)
    assert here.drafter.holds == there.drafter.holds
    assert [stream.counts for stream in here.streams.values()] == [stream.counts for stream in there.streams.values()]
    assert here.drafter.calls["read"] > 0
    assert there.drafter.calls["read"] == 0
    assert any(window.held for windows in there.backend.forwards for window in windows)


@pytest.mark.parametrize("held_on_target", [True, False])
def test_all_drafts_of_a_round_are_read_at_once(held_on_target: bool) -> None:
    run = run_with(held_on_target, "perfect", 8)
    assert run.drafter.calls["read"] <= run.backend.calls["verify"]


@pytest.mark.parametrize("held_on_target", [True, False])
@pytest.mark.parametrize("mode", ["perfect", "mixed"])
def test_fillers_for_one_round(held_on_target: bool, mode: str) -> None:
    """A stream whose drafter has nothing to draft from yet: its first window is filled up, the next has drafts."""
    seen: dict[Stream, int] = {}

    def fills(stream: Stream) -> bool:
        seen[stream] = seen.get(stream, 0) + 1
        return seen[stream] == 1

    run = run_with(held_on_target, mode, 2, fills=fills)
    first = {}
    for windows in run.backend.forwards:
        for window in windows:
            first.setdefault(window.stream.request.id, window)
    assert all(len(set(window.drafts)) == 1 and window.drafts[0] == window.pending for window in first.values())
    assert run.drafter.calls["hold"] > 0


def test_a_copy_that_goes_first_leaves_held_drafts_unread() -> None:
    """Drafts were asked for with the text before the copy; the window takes the copy, and its hold ends there."""
    script = lambda context, prompt: len(context) % 9  # noqa: E731
    ask = Request("r", (0, 1, 2), 120, sampling=script, least_match=4)
    target = {"window_ms": WINDOW_MS}
    for more in ({"hold_ms": GRID_MS}, {"step_ms": 1.0}):
        proposer = lambda request: copies_for(3, 16, request)  # noqa: E731
        run = complete([ask], settings(), "wrong", proposer, target=target, **more)
        assert run.drafter.holds
        assert run.streams["r"].counts.accepted > 80
