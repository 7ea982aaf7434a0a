"""Exit codes, error lines and progress lines."""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
import time

import pytest
from rich.console import Console

from tfjax.checkpoints.errors import CheckpointError
from tfjax.options import ConfigError
from tfjax.terminal import (
    EXPECTED,
    CommandError,
    PhaseBar,
    PhaseLines,
    phase_bars,
    progress_on_stderr,
    run_command,
)


def ends_with(error: BaseException) -> int:
    def action() -> int:
        raise error

    return run_command("tfjax x", action)


def test_the_action_chooses_the_code() -> None:
    assert run_command("tfjax x", lambda: 0) == 0
    assert run_command("tfjax x", lambda: 7) == 7


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("--port: bad"), 2, "tfjax x: error: --port: bad\n"),
        (CommandError("no template"), 1, "tfjax x: error: no template\n"),
        (CheckpointError("model", "not a model"), 1, "tfjax x: error: model: not a model\n"),
        (OSError("disk full"), 1, "tfjax x: error: disk full\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_foreseen_errors_are_one_line(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends_with(error) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", line)


def test_the_expected_errors_exist() -> None:
    for module, name in EXPECTED:
        assert issubclass(getattr(importlib.import_module(module), name), Exception)


@pytest.mark.parametrize("error", [ValueError("a bug"), RuntimeError("a bug")])
def test_unforeseen_errors_keep_their_traceback(error: Exception) -> None:
    with pytest.raises(type(error), match="a bug"):
        ends_with(error)


def test_a_reader_that_left_is_no_traceback() -> None:
    code = (
        "import sys\nfrom tfjax.terminal import run_command\n"
        "def action():\n    for _ in range(100000): print('line')\n    return 0\n"
        "sys.exit(run_command('x', action))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 1


def test_phases_are_lines_with_their_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 2.0, 2.0, 5.5])
    lines = PhaseLines(clock=lambda: next(times))
    lines("read", 0.0)
    lines("read", 0.5)
    lines("compile", 0.0)
    lines.close()
    lines.close()
    expected = ["tfjax: read", "tfjax: read took 2.0 s", "tfjax: compile", "tfjax: compile took 3.5 s"]
    assert capsys.readouterr().err.splitlines() == expected


def test_a_phase_that_takes_no_time_says_none(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 0.04])
    lines = PhaseLines(clock=lambda: next(times))
    lines("ready", 1.0)
    lines.close()
    assert capsys.readouterr().err == "tfjax: ready\n"


def test_progress_without_a_terminal_is_plain_and_ends_its_last_phase(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_on_stderr() as progress:
        progress("read", 0.0)
        time.sleep(0.06)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "tfjax: read\ntfjax: read took 0.1 s\n"


def test_each_phase_of_the_bar_has_its_own_time() -> None:
    bars = phase_bars(Console(file=io.StringIO(), width=80))
    now = [0.0]
    bars.get_time = lambda: now[0]  # type: ignore[method-assign]
    show = PhaseBar(bars)
    show("read", 0.5)
    now[0] = 3.0
    show("read", 1.0)
    now[0] = 10.0
    show("compile", 0.0)
    now[0] = 14.0
    show("compile", 0.5)
    [task] = bars.tasks
    assert (task.description, task.completed, task.finished_time, task.elapsed) == ("compile", 0.5, None, 4.0)


def test_a_long_phase_leaves_bar_and_time_on_the_line() -> None:
    output = io.StringIO()
    console = Console(file=output, width=80)
    bars = phase_bars(console)
    show = PhaseBar(bars)
    show("fetching " + "x" * 120 + "[/red]", 0.5)
    console.print(bars.get_renderable())
    [line] = output.getvalue().splitlines()
    assert len(line) <= 80
    assert line.startswith("fetching xxx")
    assert "━" in line
    assert line.rstrip().endswith("0:00:00")


def test_progress_on_a_terminal_keeps_stdout_clean(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_on_stderr() as progress:
        progress("read", 0.0)
        progress("compile", 0.5)
    assert capsys.readouterr().out == ""
