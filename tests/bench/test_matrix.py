"""The whole command over servers that it starts itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tfjax.bench import matrix

ROOT = Path(__file__).parents[2]
FAKE = (sys.executable, "-m", "tests.bench.fake_serve")
FEW = ("--tokens", "40", "--levels", "1,2", "--kinds", "code", "--reps", "2", "--temperatures", "0")


@pytest.fixture(autouse=True)
def in_the_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def run(file: Path, *words: str) -> tuple[int, dict[str, Any]]:
    code = matrix.main([*words, *FEW, "--output", str(file)], command=FAKE)
    return code, json.loads(file.read_text())


def test_drafts_against_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "m.svg"
    code, facts = run(tmp_path / "m.json", "fast", "--plot", str(plot), "--label", "a & b", "--mixed")
    out, err = capsys.readouterr()
    assert code == 0, out
    assert [(cell["kind"], cell["streams"]) for cell in facts["cells"]] == [("code", 1), ("code", 2), ("mixed", 2)]
    for cell in facts["cells"]:
        assert cell["equal"] is True
        assert cell["ratio"] > 1.5
        assert cell["quartiles"][0] <= cell["ratio"] <= cell["quartiles"][1]
        assert len(cell["ratios"]) == 2
        assert set(cell["sides"]) == {"drafted", "plain"}
        assert all(reply["server"]["drafted"] == 0 for run in cell["sides"]["plain"]["runs"] for reply in run)
        assert all(reply["server"]["drafted"] == 40 for run in cell["sides"]["drafted"]["runs"] for reply in run)
    assert facts["summary"]["losing_cells"] == []
    assert facts["summary"]["equal"] is True
    assert facts["summary"]["least_ratio"] <= facts["summary"]["mean_ratio"]
    [server] = facts["servers"]
    assert server["settings"]["parallel"] == 2
    assert facts["sides"] == {"drafted": {"server": 0, "draft": True}, "plain": {"server": 0, "draft": False}}
    assert (facts["options"]["model"], facts["options"]["least"]) == ("fast", 0.98)
    assert "server: loading the script" in err
    assert "6 of 6: " in err
    assert "drafted/plain" in out
    assert "mean over cells" in out
    assert "a & b" in "".join(ET.parse(plot).getroot().itertext())  # noqa: S314


def test_a_losing_cell_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, facts = run(tmp_path / "m.json", "slow")
    assert code == 1
    assert facts["summary"]["losing_cells"] == ["code T=0 x1", "code T=0 x2"]
    assert "loses: code T=0 x1\n" in capsys.readouterr().out


def test_other_tokens_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, facts = run(tmp_path / "m.json", "lying")
    assert code == 1
    assert [cell["equal"] for cell in facts["cells"]] == [False, False]
    assert [cell["loses"] for cell in facts["cells"]] == [False, False]
    captured = capsys.readouterr()
    assert "tokens differ: code T=0 x2" in captured.out
    assert "TOKENS DIFFER" in captured.err


def test_two_settings(tmp_path: Path) -> None:
    config = tmp_path / "none.toml"
    config.write_text("")
    words = (
        "fast",
        "--compare",
        f"--log-format text --config {config}",
        "--no-drafts",
        "--names",
        "new",
        "old",
        "--serve",
        "--queue-wait-s 7",
    )
    code, facts = run(tmp_path / "m.json", *words)
    assert code == 0
    new, old = [server["settings"] for server in facts["servers"]]
    assert (new["no_drafts"], old["no_drafts"]) == (False, True)
    assert new["queue_wait_s"] == old["queue_wait_s"] == 7
    assert facts["sides"] == {"new": {"server": 0, "draft": True}, "old": {"server": 1, "draft": True}}
    assert facts["options"]["compare"] == ["--log-format text --config none.toml", "--no-drafts"]
    assert all(cell["ratio"] > 1.5 for cell in facts["cells"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("broken",),
            "ended with code 1. It said: tfjax: loading the script | fake serve: error: the script is not there",
        ),
        (("hanging", "--ready-s", "0.1"), "the server was not ready within 0.1 s; raise --ready-s"),
        (("fast", "--serve=--no-such-flag"), "unrecognized arguments: --no-such-flag"),
        (
            ("--builds", "/no/such/python", "b"),
            "/no/such/python cannot be run (No such file or directory); give a Python",
        ),
        (("--plot", "/no/such/folder/m.svg"), "/no/such/folder is no directory"),
    ],
)
def test_what_does_not_start_is_one_line(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert matrix.main(words, command=FAKE) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("tfjax bench matrix: error: ")
    assert message in last


@pytest.mark.parametrize(("number", "model"), [(signal.SIGINT, "fast"), (signal.SIGTERM, "hanging")])
def test_an_interrupt_ends_the_servers(number: int, model: str, tmp_path: Path) -> None:
    """While it measures, and while it waits for the server to be ready."""
    # Where the tests themselves run in the background of a shell, SIGINT is ignored, and that is inherited.
    listen = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{listen}; from tfjax.bench import matrix; sys.exit(matrix.main({[model]!r}, command={FAKE!r}))"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stderr is not None
        words = "1 of 54: " if model == "fast" else "loading the script"
        for line in process.stderr:
            if words in line:
                break
        [child] = children(process.pid)
        process.send_signal(number)
        assert process.wait(15) == 130
    assert gone(child)


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def gone(pid: int) -> bool:
    deadline_s = time.monotonic() + 5
    while time.monotonic() < deadline_s:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False
