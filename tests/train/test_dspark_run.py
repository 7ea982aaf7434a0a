"""Whole runs on a tiny target: what comes out, that a killed run ends in the same bits, and planned minutes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.train import dspark_run
from tests.train.dspark_run import settings
from tfjax.models.dspark_config import DSparkConfig
from tfjax.train import dspark_run as command
from tfjax.train.dense_target import read_target
from tfjax.train.dspark_files import served
from tfjax.train.dspark_material import gather
from tfjax.train.dspark_model import models_of, published, random_params
from tfjax.train.dspark_run import measure, run


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return dspark_run.base(tmp_path)


class Killed(BaseException):
    """The process is gone."""


@contextmanager
def killed_after_step_8(steps: int, words: Any) -> Iterator[Callable[[dict[str, float]], None]]:
    def report(point: dict[str, float]) -> None:
        if point["step"] > 8:
            raise Killed

    yield report


def test_a_killed_run_ends_in_the_bits_of_one_that_was_not(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = run(settings(base, "--bits", "8", output="whole"), ["whole"])
    with monkeypatch.context() as patch:
        patch.setattr(command, "training_progress", killed_after_step_8)
        with pytest.raises(Killed):
            run(settings(base, "--bits", "8", output="cut"), [])
    run(settings(base, "--bits", "8", output="cut"), [])
    whole, resumed = (load_file(base / name / "model.safetensors") for name in ("whole", "cut"))
    assert whole.keys() == resumed.keys()
    for name in whole:
        assert whole[name].tobytes() == resumed[name].tobytes(), name
    records = [json.loads((base / name / "training.json").read_text()) for name in ("whole", "cut")]
    assert [record["steps"]["resumed_from"] for record in records] == [0, 8]
    assert records[0]["loss_curve"] == records[1]["loss_curve"]
    check_files(base / "whole", records[0], text)


def check_files(directory: Path, record: dict[str, Any], text: str) -> None:
    """What a run leaves and says."""
    config = DSparkConfig.from_hf(json.loads((directory / "config.json").read_text()))
    assert len(config.confidence_temperatures) == config.block == 3
    assert record["command"] == "tfjax train dspark whole"
    assert record["steps"] == {"taken": 24, "planned": 24, "resumed_from": 0}
    assert record["final"]["loss"] < record["loss_curve"][0]["loss"]
    assert record["drafter"]["bytes"] == sum(
        (directory / name).stat().st_size for name in ("model.safetensors", "config.json")
    )
    for name in ("held-out replies, greedy", "held-out replies, sampled"):
        assert len(record["acceptance"][name]["chance"]) == 3
        assert name in text
    for plot in ("loss.svg", "acceptance.svg", "calibration.svg"):
        assert "<svg" in (directory / plot).read_text()


def test_other_settings_do_not_go_on_with_a_run(base: Path) -> None:
    run(settings(base, "--limit-s", "0"), [])
    with pytest.raises(ValueError, match="holds a run with seed 1, and this one has 2"):
        run(settings(base, "--seed", "2"), [])


def test_planned_minutes_are_kept_for_resuming(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = settings(base, "--limit-s", "0", minutes="0.01")
    run(asked, [])
    planned = json.loads((base / "out" / "checkpoints" / "plan.json").read_text())["steps"]
    record = json.loads((base / "out" / "training.json").read_text())
    assert record["steps"]["planned"] == planned
    assert planned % 2 == 0
    assert record["steps"]["taken"] == 2
    monkeypatch.setattr(command, "steps_in", lambda *_: 1 << 20)
    run(asked, [])
    again = json.loads((base / "out" / "training.json").read_text())["steps"]
    assert (again["resumed_from"], again["planned"]) == (2, planned)


def test_what_is_measured_is_what_is_served(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = settings(base, "--bits", "8").for_device("cpu")
    material = gather(asked, lambda _text, _share: None)
    target = read_target(material.checkpoint)
    params = random_params(material.config, target, 1)
    seen: list[Any] = []
    monkeypatch.setattr(command, "land", lambda params, *_, **__: seen.append(params))
    monkeypatch.setattr(command, "walk", lambda *_: None)
    measure(params, models_of(material.config, target, material.draft_ids), material, material.config, asked)
    assert len(seen) == len(material.measured)
    for name, value in published(served(params, 8)):
        np.testing.assert_array_equal(dict(published(seen[0]))[name], value)


def test_checkpoints_lie_between_dispatches(base: Path) -> None:
    with pytest.raises(ValueError, match="--save-every 5 is no multiple of --steps-per-call 2"):
        run(settings(base, "--save-every", "5"), [])


def test_a_run_goes_on_from_what_another_one_wrote(base: Path) -> None:
    objective = ("--coupling", "1", "--compare-at", "reply", "--confidence-target", "kept")
    run(settings(base, output="first"), [])
    flags = ("--start-from", str(base / "first" / "model.safetensors"), *objective, "--learning-rate", "0.001")
    run(settings(base, *flags, output="second"), [])
    first, second = (json.loads((base / name / "training.json").read_text()) for name in ("first", "second"))
    sha256 = hashlib.sha256((base / "first" / "model.safetensors").read_bytes()).hexdigest()
    assert first["started_from"] is None
    assert second["started_from"] == {"sha256": sha256, "steps": 24}
    assert second["loss_curve"][0]["cross"] < 0.9 * first["loss_curve"][0]["cross"]
    (base / "other").mkdir()
    for name in ("config.json", "training.json"):
        (base / "other" / name).write_bytes((base / "second" / name).read_bytes())
    (base / "other" / "model.safetensors").write_bytes((base / "second" / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match=f"holds a run with started_from '{sha256}'"):
        run(settings(base, *flags, "--start-from", str(base / "other"), output="second"), [])
