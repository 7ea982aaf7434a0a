"""What the record, the plots and the closing lines say of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.models.dspark_oracle import Shape
from tests.train import dspark_run, dspark_tiny
from tfjax.train.dspark_acceptance import Rounds
from tfjax.train.dspark_record import Run, plots, summary
from tfjax.train.dspark_run import pace_of
from tfjax.train.dspark_step import first_state
from tfjax.train.small_loop import Outcome

CONFIG = dataclasses.replace(dspark_tiny.config_of(Shape(block=3)), confidence_temperatures=(1.0, 2.0, 4.0))
ROUNDS = Rounds(np.array([3, 0, 1], np.int32), np.array([3, 3, 2], np.int32), np.full((3, 3), 1.5, np.float32), 7)


def a_run(tmp_path: Path, *flags: str, taken: int = 24, rounds: dict[str, Rounds] | None = None) -> Run:
    settings = dspark_run.settings(tmp_path, *flags).for_device("cpu")
    names = ("loss", "cross", "distance", "divergence", "coupling", "confidence", "agreement", "kept")
    curve = [{"step": step, **dict.fromkeys(names, 1 / step)} for step in (12.0, 24.0)]
    outcome = Outcome(first_state(dspark_tiny.random_params(CONFIG)), taken, 0, curve)
    found = {"replies, greedy": ROUNDS} if rounds is None else rounds
    return Run(settings, ["out"], pace_of(settings, settings.steps), outcome, found, CONFIG, 3 << 20, 1.0)


def test_the_closing_lines(tmp_path: Path) -> None:
    assert summary(a_run(tmp_path)).splitlines() == [
        f"{tmp_path / 'out'}: 3.00 MiB after 24 of 24 steps",
        "replies, greedy: drafts by depth [0.6667, 0.5, 1.0], 2.3333 tokens a round",
    ]
    assert summary(a_run(tmp_path, taken=12)).endswith("stopped at its limit; the same command goes on from here")


def test_only_parts_that_weigh_are_drawn(tmp_path: Path) -> None:
    drawn = plots(a_run(tmp_path))["loss.svg"]
    assert ">cross<" in drawn
    assert ">divergence<" not in drawn
    assert ">divergence<" in plots(a_run(tmp_path, "--divergence", "1"))["loss.svg"]


def test_what_was_not_measured_is_not_drawn(tmp_path: Path) -> None:
    assert set(plots(a_run(tmp_path, rounds={}))) == {"loss.svg"}
    drawn = plots(a_run(tmp_path))
    assert set(drawn) == {"loss.svg", "acceptance.svg", "calibration.svg"}
    assert "replies, greedy (2.33 tokens a round)" in drawn["acceptance.svg"]


@pytest.mark.parametrize(("asked", "steps"), [(24, 24), (25, 26), (1, 2)])
def test_steps_fill_dispatches(tmp_path: Path, asked: int, steps: int) -> None:
    settings = dspark_run.settings(tmp_path).for_device("cpu")
    assert pace_of(settings, asked).steps == steps
