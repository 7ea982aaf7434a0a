"""Whole runs on a tiny corpus: a killed run ends in the same bits, and what lies there is checked."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.train.tiny_target import SOURCES, settings, tiny_sources
from tfjax.train import corpus_tokens, target_run
from tfjax.train.corpus_tokens import UnusableCorpus
from tfjax.train.small_checkpoints import OtherRun
from tfjax.train.target_pace import Timing
from tfjax.train.target_run import pieces, run

__all__ = ["tiny_sources"]
pytestmark = pytest.mark.usefixtures("tiny_sources")


class Killed(BaseException):
    """The process is gone."""


@contextmanager
def killed_after_step_4(steps: int, words: Any) -> Iterator[Callable[[dict[str, float]], None]]:
    def report(point: dict[str, float]) -> None:
        if point["step"] > 4:
            raise Killed

    yield report


def test_a_killed_run_ends_in_the_bits_of_one_that_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_run, cut_run = (
        dataclasses.replace(settings(tmp_path, name), steps=None, minutes=0.01) for name in ("whole", "cut")
    )
    timings = iter([Timing(1.0, 0.05), Timing(1.0, 0.05)])  # 12 steps; resuming measures no more
    monkeypatch.setattr(target_run, "_time", lambda *_: next(timings))
    run(whole_run, [])
    with monkeypatch.context() as patch:
        patch.setattr(target_run, "training_progress", killed_after_step_4)
        with pytest.raises(Killed):
            run(cut_run, [])
    run(cut_run, [])
    whole, resumed = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert whole.keys() == resumed.keys()
    for name in whole:
        assert whole[name].tobytes() == resumed[name].tobytes(), name
    records = [json.loads((tmp_path / name / "training.json").read_text()) for name in ("whole", "cut")]
    assert [record["steps"] for record in records] == [
        {"taken": 12, "planned": 12, "resumed_from": 0},
        {"taken": 12, "planned": 12, "resumed_from": 4},
    ]
    assert records[0]["loss_curve"] == records[1]["loss_curve"]
    assert records[0]["held_out"] == records[1]["held_out"]


def test_preparing_stops_before_training(tmp_path: Path) -> None:
    text = run(settings(tmp_path, "out", "--prepare-only"), [])
    assert "tokens to learn" in text
    assert (tmp_path / "corpus" / "tokenizer.json").exists()
    assert not (tmp_path / "out").exists()


def test_another_run_is_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = run(settings(tmp_path, "out", "--limit-s", "0"), [])
    assert "after 2 of 12 steps" in text
    assert text.endswith("stopped at its limit; the same command goes on from here")
    with pytest.raises(OtherRun, match=r"holds a run with weight_decay 0\.1, and this one has 0\.2"):
        run(settings(tmp_path, "out", "--weight-decay", "0.2"), [])
    shutil.rmtree(tmp_path / "corpus")
    fewer = dataclasses.replace(SOURCES, files=SOURCES.files[:-1])
    monkeypatch.setattr(corpus_tokens, "read_sources", lambda packages: fewer)
    with pytest.raises(OtherRun, match="holds a run with tokens"):
        run(settings(tmp_path), [])


def test_pieces_are_rows_and_too_few_tokens_are_refused() -> None:
    token = np.arange(11, dtype=np.uint16)
    assert pieces(token, 5, "learned").tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    with pytest.raises(UnusableCorpus, match="has 11 learned tokens, too few for 3 x 5; lower --length"):
        pieces(token, 5, "learned", least=3)
