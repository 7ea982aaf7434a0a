"""Whole runs on a tiny target: what comes out, and that a killed run ends in the same bits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tests.train import tiny_run
from tfjax.train import small_run
from tfjax.train.small_run import run


@pytest.fixture
def base(tmp_path: Path) -> Path:
    tiny_run.write_replies(tmp_path / "replies", tiny_run.write_target(tmp_path / "target"))
    return tmp_path


class Killed(BaseException):
    """The process is gone."""


@contextmanager
def killed_after_step_20(steps: int) -> Iterator[Callable[[dict[str, float]], None]]:
    def report(point: dict[str, float]) -> None:
        if point["step"] > 20:
            raise Killed

    yield report


def test_a_killed_run_ends_in_the_bits_of_one_that_was_not(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("--teacher", "online", "--epochs", "1.5", "--save-every", "20")
    whole_run = tiny_run.settings(base, "--output", str(base / "whole"), *flags)
    cut_run = tiny_run.settings(base, "--output", str(base / "cut"), *flags)
    run(whole_run, [])
    with monkeypatch.context() as patch:
        patch.setattr(small_run, "training_progress", killed_after_step_20)
        with pytest.raises(Killed):
            run(cut_run, [])
    run(cut_run, [])
    whole, resumed = (load_file(base / name / "model.safetensors") for name in ("whole", "cut"))
    assert whole.keys() == resumed.keys()
    for name in whole:
        assert whole[name].tobytes() == resumed[name].tobytes(), name
    records = [json.loads((base / name / "training.json").read_text()) for name in ("whole", "cut")]
    assert [record["steps"]["resumed_from"] for record in records] == [0, 20]
    assert records[0]["loss_curve"] == records[1]["loss_curve"]
