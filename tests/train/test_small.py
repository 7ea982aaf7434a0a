"""The command: files it leaves, and how it ends where something is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tests.conftest import ROOT
from tests.train import tiny_run
from tfjax.checkpoints import open_checkpoint
from tfjax.engine.drafters.loading import load_drafter
from tfjax.engine.weights import load_model
from tfjax.text.loading import load_tokenizer
from tfjax.train.small import main


@pytest.fixture
def base(tmp_path: Path) -> Path:
    tiny_run.write_replies(tmp_path / "replies", tiny_run.write_target(tmp_path / "target"))
    return tmp_path


def nothing(phase: str, fraction: float) -> None:
    """Progress that nobody watches."""


def words(base: Path, output: str = "out") -> list[str]:
    places = ["--model", str(base / "target"), "--replies", str(base / "replies"), "--output", str(base / output)]
    return [*places, *tiny_run.TINY_FLAGS]


def test_a_run_leaves_a_drafter_and_its_record(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_run.write_replies(base / "problems", base / "target", tiny_run.replies(6), prompts="HumanEval 1")
    command = [*words(base), "--measure", str(base / "problems"), "--epochs", "1"]
    assert main(command) == 0
    record = json.loads((base / "out" / "training.json").read_text())
    assert record["command"].startswith("tfjax train small --model ")
    assert record["settings"]["seed"] == 1
    assert record["data"]["recipes"][0]["prompts"] == "counting"
    assert record["data"]["reply_tokens"] == 98 * 20
    assert record["data"]["filled"] == pytest.approx((record["data"]["prompt_tokens"] + 98 * 20) / (98 * 32), abs=1e-4)
    assert record["steps"]["taken"] == record["steps"]["planned"] > 0
    assert record["steps"]["resumed_from"] == 0
    assert set(record["acceptance"]) == {"held-out replies", "HumanEval"}
    assert record["acceptance"]["HumanEval"]["positions"] == 4 * 19  # the greedy four of six
    assert len(record["acceptance"]["HumanEval"]["chance"]) == 8
    assert record["drafter"]["weights_bytes"] == (base / "out" / "model.safetensors").stat().st_size
    assert record["loss_curve"][-1]["step"] == record["steps"]["taken"]
    assert record["versions"]["jax"]
    assert (base / "out" / "loss.svg").read_text().startswith("<svg")
    assert json.loads((base / "out" / "config.json").read_text())["architectures"] == ["TfjaxSmallDrafter"]
    target = load_model(open_checkpoint(base / "target"), "bfloat16", nothing)
    tokenizer = load_tokenizer(open_checkpoint(base / "target"))
    drafter = load_drafter(base / "out", target, tokenizer, "bfloat16", 4, nothing)
    assert (drafter.kind, len(drafter.ids)) == ("small", 40)
    shown = capsys.readouterr().out
    assert "held-out replies: drafts by depth [" in shown
    assert "MiB after" in shown


def test_a_limit_stops_it_and_the_same_command_goes_on(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words(base), "--epochs", "1", "--limit-s", "0"]) == 0
    assert "stopped at its limit; the same command goes on" in capsys.readouterr().out
    assert main([*words(base), "--epochs", "1"]) == 0
    steps = json.loads((base / "out" / "training.json").read_text())["steps"]
    assert (steps["resumed_from"], steps["taken"]) == (2, steps["planned"])


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--layers", "0"], 2, "--layers: '0' is not within 1 to 64"),
        (["--max-mib", "0.01", "--inner", "64"], 1, "more than --max-mib 0.01"),
        (["--save-every", "5"], 1, "--save-every 5 is no multiple of --steps-per-call 2"),
        (["--replies", "/nowhere"], 1, "/nowhere holds no replies"),
        (["--model", "/nowhere"], 1, "/nowhere: no such model"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    base: Path, capsys: pytest.CaptureFixture[str], flags: list[str], code: int, message: str
) -> None:
    assert main([*words(base), *flags]) == code
    errors = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(errors) == 1
    assert errors[0].startswith("tfjax train small: error: ")
    assert message in errors[0]


def test_a_directory_of_another_run_is_refused(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words(base), "--limit-s", "0"]) == 0
    assert main([*words(base), "--limit-s", "0", "--seed", "2"]) == 1
    assert "a run with seed 1, and this one has 2" in capsys.readouterr().err
    tiny_run.write_replies(base / "replies", base / "target", tiny_run.replies(7))  # a second shard
    assert main([*words(base), "--limit-s", "0"]) == 1
    assert "a run with rows '" in capsys.readouterr().err


def test_a_missing_package_is_named(
    base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("tfjax.train.small_")]:
        if name != "tfjax.train.small_settings":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "optax", None)
    assert main(words(base)) == 1
    assert "training needs optax; install it with: pip install 'tfjax[train]'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_process_that_is_killed_goes_on_to_the_same_bits(base: Path) -> None:
    command = [sys.executable, "-m", "tfjax.train.small"]
    flags = ["--epochs", "8", "--save-every", "10"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([*command, *words(base, "whole"), *flags], check=True, env=environment)
    killed = subprocess.Popen([*command, *words(base, "cut"), *flags], env=environment)
    checkpoints = base / "cut" / "checkpoints"
    while not any(path.name.isdigit() for path in checkpoints.glob("*")):
        assert killed.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert not (base / "cut" / "model.safetensors").exists()
    subprocess.run([*command, *words(base, "cut"), *flags], check=True, env=environment)
    record = json.loads((base / "cut" / "training.json").read_text())
    assert 0 < record["steps"]["resumed_from"] < record["steps"]["taken"]
    whole, cut = (load_file(base / name / "model.safetensors") for name in ("whole", "cut"))
    assert {name: value.tobytes() for name, value in whole.items()} == {n: value.tobytes() for n, value in cut.items()}
