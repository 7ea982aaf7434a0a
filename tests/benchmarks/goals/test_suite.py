from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.blocks import Blocks
from benchmarks.goals import suite
from benchmarks.goals.suite import measure_goals, run_children

WRITES = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"


def running(code: str, found: Any = None) -> suite.Command:
    """Every block is this program, which writes what it found first."""

    def command(name: str, seconds: float, output: Path) -> Sequence[str]:
        return [sys.executable, "-c", f"{WRITES}\n{code}", str(output), json.dumps(found or {name: {"value": 1}})]

    return command


def run(command: suite.Command, seconds: float = 1e4, names: Sequence[str] = ("windows", "tax")) -> Blocks:
    blocks = Blocks(seconds)
    run_children(blocks, names, command)
    return blocks


def test_each_block_is_kept_under_its_name() -> None:
    blocks = run(running(""))
    assert blocks.as_dict() == {"windows": {"windows": {"value": 1}}, "tax": {"tax": {"value": 1}}}


def test_one_that_dies_leaves_what_it_wrote_and_fails() -> None:
    blocks = run(running("raise SystemExit(3)"))
    assert blocks.found["windows"] == {"windows": {"value": 1}, "error": "its process ended with code 3"}
    assert blocks.failed == ["windows", "tax"]


def test_one_that_hangs_is_ended_with_all_that_it_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(suite, "EXPECTED_S", {"windows": 0.0})
    monkeypatch.setattr(suite, "GRACE_S", 2.0)
    mark = tmp_path / "late"
    late = f"import time, pathlib; time.sleep(4); pathlib.Path({str(mark)!r}).touch()"
    hangs = f"import subprocess; subprocess.Popen([sys.executable, '-c', {late!r}]).wait(); import time; time.sleep(60)"
    blocks = run(running(hangs), seconds=2.5, names=["windows"])
    assert "not done within" in blocks.found["windows"]["error"]
    assert blocks.found["windows"]["windows"] == {"value": 1}
    time.sleep(3.0)
    assert not mark.exists()


def test_a_part_that_failed_fails_the_block() -> None:
    assert run(running("", {"failed": ["ours"]}), names=["tax"]).failed == ["tax"]


def test_one_without_time_is_left_out() -> None:
    blocks = run(running(""), seconds=1.0)
    assert (blocks.found, list(blocks.left_out)) == ({}, ["windows", "tax"])


def test_a_block_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="--block nothing is not known; give some of: windows"):
        measure_goals(Blocks(1.0), "auto", ["nothing"], "python")


def test_the_parent_never_starts_the_device() -> None:
    """It would hold the memory that its blocks need."""
    code = "import benchmarks.goals.suite as suite; suite.table({}); from jax._src import xla_bridge as bridge; "
    subprocess.run([sys.executable, "-c", f"{code}assert not bridge._backends"], check=True)


def test_the_table_comes_last(capsys: pytest.CaptureFixture[str]) -> None:
    measure_goals(Blocks(0.0), "auto", ["tax"], "python")
    assert "| work | limit | goal | measured | met |" in capsys.readouterr().out


def test_children_are_told_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Sequence[str]] = []

    def run(blocks: Blocks, names: Sequence[str], command: suite.Command) -> None:
        told.extend(command(name, 12.3, Path("out")) for name in names)

    monkeypatch.setattr(suite, "run_children", run)
    measure_goals(Blocks(1.0), "reference", ["small http"], "python", "some.gguf")
    flags = ["--seconds", "12", "--kernels", "reference", "--peer-python", "python", "--model", "some.gguf"]
    assert told == [[sys.executable, "-m", "benchmarks.goals.child", "small http", *flags, "--output", "out"]]
