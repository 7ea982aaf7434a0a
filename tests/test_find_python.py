"""scripts/find_python.sh against fake Pythons: only one that really runs and is new enough counts."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "find_python.sh"
TOOLS = ("sh", "tail", "head", "dirname")

WORKS = "exit 0"
SHIM = "echo 'pyenv: python3.12: command not found' >&2; echo >&2; echo 'It exists in these versions:' >&2; exit 127"
OLD = "echo 'is Python 3.11, needs 3.12 or newer' >&2; exit 1"
NO_PIP = "printf 'Traceback (most recent):\\n  File\\nModuleNotFoundError: No module named ensurepip\\n' >&2; exit 1"


@dataclass(frozen=True, slots=True)
class Machine:
    """A folder with nothing on PATH but the few tools that the script uses and the fakes that a test adds."""

    root: Path

    def add(self, name: str, behaviour: str) -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{behaviour}\n")
        path.chmod(0o755)
        return str(path)

    def find(self, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", str(SCRIPT)],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
            env={"PATH": str(self.root / "bin"), **environ},
        )

    def found(self, **environ: str) -> str:
        done = self.find(**environ)
        assert done.returncode == 0, done.stderr
        return done.stdout.removesuffix("\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        real = next(folder / tool for folder in (Path("/bin"), Path("/usr/bin")) if (folder / tool).exists())
        (tmp_path / "bin" / tool).symlink_to(real)
    return Machine(tmp_path)


def test_order_on_path(machine: Machine) -> None:
    names = ["python3.12", "python3.13", "python3.14", "python3"]
    for name in reversed(names):
        path = machine.add(f"bin/{name}", WORKS)
        assert machine.found() == path


def test_the_named_python_comes_first(machine: Machine) -> None:
    machine.add("bin/python3.12", WORKS)
    mine = machine.add("my pythons/python", WORKS)
    assert machine.found(PYTHON=mine) == mine
    other = machine.add("bin/python3.15", WORKS)
    assert machine.found(PYTHON="python3.15") == other


def test_a_named_python_that_does_not_count_is_said_and_others_are_tried(machine: Machine) -> None:
    good = machine.add("bin/python3.12", WORKS)
    old = machine.add("old/python", OLD)
    done = machine.find(PYTHON=old)
    assert (done.returncode, done.stdout) == (0, f"{good}\n")
    assert f"PYTHON={old} is not usable" in done.stderr
    assert "is Python 3.11" in done.stderr


@pytest.mark.parametrize("failing", [SHIM, OLD, NO_PIP])
def test_one_that_fails_does_not_count(machine: Machine, failing: str) -> None:
    machine.add("bin/python3.12", failing)
    good = machine.add("bin/python3.14", WORKS)
    done = machine.find()
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{good}\n", "")


def test_pyenv_root(machine: Machine) -> None:
    machine.add("bin/python3.12", SHIM)
    machine.add("root/versions/3.11.7/bin/python", OLD)
    good = machine.add("root/versions/3.13.0/bin/python", WORKS)
    machine.add("root/versions/2.7.18/bin/python", WORKS)
    machine.add("root/versions/pypy3.12/bin/python", WORKS)
    assert machine.found(PYENV_ROOT=str(machine.root / "root")) == good


def test_beside_the_pyenv_on_path(machine: Machine) -> None:
    pyenv = machine.add(".pyenv/bin/pyenv", WORKS)
    good = machine.add(".pyenv/versions/3.12.1/bin/python", WORKS)
    path = f"{machine.root / 'bin'}:{Path(pyenv).parent}"
    assert machine.found(PATH=path) == good
    assert machine.found(PATH=path, PYENV_ROOT=str(machine.root / "nowhere")) == good


def test_path_comes_before_pyenv(machine: Machine) -> None:
    machine.add("root/versions/3.12.1/bin/python", WORKS)
    good = machine.add("bin/python3", WORKS)
    assert machine.found(PYENV_ROOT=str(machine.root / "root")) == good


def test_failure_lists_what_was_tried_and_one_install_line(machine: Machine) -> None:
    shim = machine.add("bin/python3.12", SHIM)
    old = machine.add("bin/python3", OLD)
    bare = machine.add("root/versions/3.12.4/bin/python", NO_PIP)
    done = machine.find(PYENV_ROOT=str(machine.root / "root"), PYTHON="/no/such")
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert "  /no/such: not found" in lines
    assert f"  {shim}: pyenv: python3.12: command not found" in lines
    assert "  python3.13: not found" in lines
    assert "  python3.14: not found" in lines
    assert f"  {old}: is Python 3.11, needs 3.12 or newer" in lines
    assert f"  {bare}: ModuleNotFoundError: No module named ensurepip" in lines
    assert len([line for line in lines if line.startswith("To install one: ")]) == 1


@pytest.mark.parametrize(
    ("tool", "line"),
    [
        ("pyenv", "pyenv install 3.12"),
        ("brew", "brew install python@3.12"),
        ("apt-get", "sudo apt-get install python3.12 python3.12-venv"),
        ("dnf", "sudo dnf install python3.12"),
    ],
)
def test_the_install_line_fits_the_machine(machine: Machine, tool: str, line: str) -> None:
    machine.add(f"bin/{tool}", WORKS)
    assert machine.find().stderr.splitlines()[-1] == f"To install one: {line}"


def test_the_probe_is_what_really_decides(machine: Machine) -> None:
    """Fakes prove the search; a real interpreter proves the probe: a too high floor makes it fail, in words."""
    import sys

    assert machine.found(PYTHON=sys.executable) == sys.executable
    strict = machine.root / "strict.sh"
    strict.write_text(SCRIPT.read_text().replace("(3, 12)", "(99, 0)"))
    done = subprocess.run(
        ["/bin/sh", str(strict)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(machine.root / "bin"), "PYTHON": sys.executable},
    )
    assert done.returncode == 1
    assert f"{sys.executable}: is Python {sys.version_info[0]}.{sys.version_info[1]}" in done.stderr


def test_a_candidate_gets_no_stdin(machine: Machine) -> None:
    machine.add("bin/python3.12", "read line && exit 0; exit 1")
    done = subprocess.run(
        ["/bin/sh", str(SCRIPT)],
        input="a line\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
        env={"PATH": str(machine.root / "bin")},
    )
    assert done.returncode == 1
