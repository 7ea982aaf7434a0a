"""The command line as a user meets it: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfjax import __version__, cli

HEAVY = (
    "jax",
    "jaxlib",
    "numpy",
    "flax",
    "starlette",
    "uvicorn",
    "msgspec",
    "rich",
    "gguf",
    "tokenizers",
    "huggingface_hub",
)


def tfjax(*words: str, module: str = "tfjax", **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **environ},
    )


@pytest.mark.parametrize(
    "command", [[], *([name] for name in cli.COMMANDS)], ids=lambda words: " ".join(words) or "top"
)
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    code = (
        "import sys\nfrom tfjax.cli import main\n"
        f"try:\n    main({[*command, '--help']!r})\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == "[]\n"
    assert "usage: tfjax" in done.stdout


@pytest.mark.alone
def test_help_answers_in_under_a_second() -> None:
    fastest = min(_seconds("serve", "--help") for _ in range(3))
    assert fastest < 1.0


def _seconds(*words: str) -> float:
    start = time.perf_counter()
    assert tfjax(*words).returncode == 0
    return time.perf_counter() - start


@pytest.mark.parametrize("words", [["--version"], *([name, "--version"] for name in cli.COMMANDS)])
def test_version_is_on_stdout(words: list[str]) -> None:
    done = tfjax(*words)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"tfjax {__version__}\n", "")


def test_the_subcommand_is_the_module() -> None:
    assert tfjax("serve", "--help").stdout == tfjax("--help", module="tfjax.serve").stdout
    assert tfjax("info", "--help").stdout == tfjax("--help", module="tfjax.info").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "usage: tfjax"),
        (["sever"], "invalid choice: 'sever'"),
        (["serve", "--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (["serve", "--parralel", "8"], "unrecognized arguments: --parralel (did you mean --parallel?)"),
        (["serve", "--port", "x"], "tfjax serve: error: --port: 'x' is not a whole number; give one from 0 to 65535"),
        (["serve", "--host", "0.0.0.0"], "tfjax serve: error: --host: '0.0.0.0' can be reached from other machines"),
        (["generate", "only-a-model"], "the following arguments are required: PROMPT"),
        (["generate", "m", "p", "--temperature", "hot"], "tfjax generate: error: --temperature: 'hot' is not a number"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_why(words: list[str], message: str) -> None:
    done = tfjax(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_variable_with_a_bad_value_is_named() -> None:
    done = tfjax("serve", TFJAX_PORT="tcp://10.0.0.1:80")
    assert done.returncode == 2
    assert "TFJAX_PORT: 'tcp://10.0.0.1:80' is not a whole number" in done.stderr


def test_a_missing_model_is_exit_code_1(tmp_path: Path) -> None:
    done = tfjax("info", str(tmp_path / "absent"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "tfjax info: error: " in done.stderr
    assert str(tmp_path / "absent") in done.stderr
    assert "Traceback" not in done.stderr
