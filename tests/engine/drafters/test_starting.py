from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.drafters.pair import PLAN, drafting, loaded, memory_of
from tests.engine.drafters.spark_pair import BLOCK, drafting_spark
from tests.engine.drafters.spark_stage import Stage
from tfjax.engine.buckets import single_bucket_plan
from tfjax.engine.compiles import compiles
from tfjax.engine.drafters import starting
from tfjax.engine.drafters.hold_times import time_holds
from tfjax.engine.drafters.starting import start_drafter, start_dspark


@pytest.mark.parametrize("plan", [PLAN, single_bucket_plan()], ids=lambda plan: plan.arithmetic)
def test_everything_is_compiled_and_timed(
    plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    grid = {1: {1: 1.04}, 2: {1: 2.0, 4: 3.0}}
    monkeypatch.setattr(starting, "time_holds", lambda drafter, directory, key: (grid, True))
    phases: list[str] = []
    compiled: list[Any] = []
    for name in ("prepare_holding", "prepare_absorbing"):
        monkeypatch.setattr(starting.DraftStep, name, lambda step, bucket, *_: partial(compiled.append, bucket))
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


@pytest.mark.parametrize(("depth", "drafts"), [(2, 2), (9, BLOCK)])
def test_a_drafter_of_blocks(
    random_stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int, drafts: int
) -> None:
    """It makes no more drafts than its block has, listens to the target, and is timed under its plan."""
    grid, keys = {1: {1: 1.0}}, []
    monkeypatch.setattr(starting, "time_holds", lambda drafter, directory, key: (keys.append(key), (grid, True))[1])
    phases: list[str] = []
    compiled: list[Any] = []
    for name in ("prepare_holding", "prepare_absorbing", "prepare_joining"):
        monkeypatch.setattr(starting.BlockStep, name, lambda step, *arguments: partial(compiled.append, arguments))
    drafter = start_dspark(
        drafting_spark(random_stage.spark), random_stage.target, depth, lambda phase, _: phases.append(phase),
        timings=tmp_path, key=["here"],
    )  # fmt: skip
    assert drafter.depth == drafts
    assert {bucket.slots for bucket in drafter.plan.holds} == {min(2, drafts), min(4, drafts), drafts}
    assert [one[0] for one in compiled if len(one) == 4] == list(drafter.plan.holds)
    features = [one[1] for one in compiled if len(one) == 3]
    assert [(one.shape, one.dtype) for one in features] == [((rows, 64), np.float32) for rows in (4, 32, 64)]
    joined = [one[0] for one in compiled if len(one) == 1]
    assert [(one.shape, one.dtype) for one in joined] == [((4, 64), np.float32)]
    assert random_stage.target.listener == drafter.listen
    assert drafter.hold_ms == grid
    assert keys[0][:2] == ["here", str(drafter.plan)]
    assert {"compiling the drafter", "timing the drafter"} == set(phases)


def test_timing_blocks_really_drafts(stage: Stage, tmp_path: Path) -> None:
    drafter = stage.drafter
    before = compiles()
    grid, _ = time_holds(drafter, tmp_path, [])
    assert compiles() == before
    assert {streams: set(row) for streams, row in grid.items()} == {count: {1, 2, 3, BLOCK} for count in (1, 2, 4)}
    assert all(ms > 0 for row in grid.values() for ms in row.values())
