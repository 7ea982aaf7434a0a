from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drafters.pair import PLAN, drafting, loaded, memory_of
from tfjax.engine.buckets import single_bucket_plan
from tfjax.engine.drafters import starting
from tfjax.engine.drafters.starting import start_drafter


@pytest.mark.parametrize("plan", [PLAN, single_bucket_plan()], ids=lambda plan: plan.arithmetic)
def test_everything_is_compiled_and_timed(
    plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    grid = {1: {1: 1.04}, 2: {1: 2.0, 4: 3.0}}
    monkeypatch.setattr(starting, "time_holds", lambda drafter, directory, key: (grid, True))
    phases: list[str] = []
    compiled: list[Any] = []
    for name in ("compile_holding", "compile_absorbing"):
        monkeypatch.setattr(starting.DraftStep, name, lambda step, bucket, state, pages: compiled.append(bucket))
    with caplog.at_level(logging.INFO):
        drafter = start_drafter(
            drafting(loaded()), memory_of(), plan, 4, lambda phase, _: phases.append(phase), timings=tmp_path, key=[]
        )
    assert sorted(map(repr, compiled)) == sorted(map(repr, [*drafter.plan.holds, *drafter.plan.absorbs]))
    assert drafter.plan.holds[0].step_rows == (4 if plan is PLAN else 2)
    assert drafter.depth == 4
    assert drafter.hold_ms == grid
    assert {"compiling the drafter", "timing the drafter"} == set(phases)
    assert "drafts of tiny take, by depth, with 1 stream: 1.0 ms for 1; 2 streams: 2.0 ms for 1, 3.0 ms for 4" in (
        caplog.text
    )
    assert "measured now" in caplog.text


def test_times_are_kept_apart_by_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[Any] = []
    monkeypatch.setattr(starting, "time_holds", lambda drafter, directory, key: (keys.append(key), ({}, True))[1])
    monkeypatch.setattr(starting, "compile_drafter", lambda drafter, progress: None)
    for model in (drafting(loaded()), drafting(loaded(), ids=range(30))):
        for depth in (4, 5):
            start_drafter(model, memory_of(), PLAN, depth, lambda *_: None, timings=tmp_path, key=["here"])
    assert len(set(map(tuple, keys))) == 4
    assert all(key[0] == "here" for key in keys)
