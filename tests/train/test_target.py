"""The command: files it leaves, that they are served, and how it ends where something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.train.tiny_target import tiny_sources, words
from tfjax.checkpoints import open_checkpoint
from tfjax.engine.weights import load_model
from tfjax.text.loading import load_tokenizer
from tfjax.train.target import main

__all__ = ["tiny_sources"]
pytestmark = pytest.mark.usefixtures("tiny_sources")


def nothing(phase: str, fraction: float) -> None:
    """Progress that nobody watches."""


def test_a_run_leaves_a_model_and_its_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(words(tmp_path)) == 0
    record = json.loads((out / "training.json").read_text())
    assert record["command"].startswith("tfjax train target --output ")
    assert record["settings"]["attention"] == [1]
    assert record["corpus"]["licenses"] == {"python": "PSF-2.0"}
    assert record["steps"] == {"taken": 12, "planned": 12, "resumed_from": 0}
    assert record["loss_curve"][-1]["loss"] < record["loss_curve"][0]["loss"] - 0.5
    assert set(record["loss_curve"][0]) == {"step", "loss", "held_out", "imbalance"}
    assert record["model"]["weights_bytes"] == (out / "model.safetensors").stat().st_size
    assert set(record["model"]["mlx_mib"]) == {"8 bits", "6 bits", "4 bits", "8 bits, experts 4"}
    assert record["held_out"]["tokens"] > 100
    assert record["tokens_per_s"] > 0
    assert (out / "loss.svg").read_text().startswith("<svg")
    shown = capsys.readouterr().out
    assert "million parameters" in shown
    assert "held-out text: " in shown
    checkpoint = open_checkpoint(out)
    tokenizer = load_tokenizer(checkpoint)
    assert (tokenizer.vocab_size, set(tokenizer.eos_ids)) == (record["model"]["vocab_size"], {7, 2})
    assert load_model(checkpoint, "bfloat16", nothing).module.config.vocab == tokenizer.vocab_size


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--length", "60000"], "too few for"),
        (["--vocab", "300"], "holds a corpus with asked_vocab 320"),
        (["--picked", "9"], "--picked: 9 is more than --experts 4"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    tmp_path: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(tmp_path, "out", "--prepare-only")) == 0
    capsys.readouterr()
    assert main(words(tmp_path, "out", *flags)) in (1, 2)
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tfjax train target: error: ")]
    assert len(errors) == 1
    assert message in errors[0]
