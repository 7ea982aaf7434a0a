"""Tests that measure time run beside no test of another process; the others run side by side."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.alone import Room

ROOT = Path(__file__).resolve().parent.parent

TESTS = """
import os, time
from pathlib import Path
import pytest

def spent(name):
    began = time.monotonic()
    time.sleep(0.15)
    line = f"{name} {os.getpid()} {began} {time.monotonic()}\\n"
    with open(os.environ["SPENT"], "a") as file:
        file.write(line)

@pytest.mark.parametrize("number", range(4))
def test_beside(number):
    spent("beside")

@pytest.mark.alone
@pytest.mark.parametrize("number", range(2))
def test_alone(number):
    spent("alone")

@pytest.mark.parametrize("number", range(2))
def test_after(number):
    spent("beside")
"""


@pytest.fixture
def spent(tmp_path: Path) -> list[tuple[str, str, float, float]]:
    """(kind, process, beginning, end) of each test of a run that two processes share."""
    for name in ("one", "two"):
        (tmp_path / f"test_{name}.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = alone: as here\n")
    words = ["-q", "-n", "2", "--dist", "loadfile", "-p", "tests.alone", "-p", "no:cacheprovider", "."]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environ = {**inherited, "PYTHONPATH": path, "SPENT": str(tmp_path / "spent")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in (tmp_path / "spent").read_text().splitlines()]
    return [(kind, process, float(began), float(ended)) for kind, process, began, ended in lines]


def test_two_processes_leave_a_lone_test_alone(spent: list[tuple[str, str, float, float]]) -> None:
    assert len(spent) == 16
    assert len({process for _, process, _, _ in spent}) == 2
    for kind, _, began, ended in spent:
        meanwhile = [one for one in spent if one[2] < ended and began < one[3]]
        assert kind == "beside" or len(meanwhile) == 1


@pytest.fixture
def rooms(tmp_path: Path) -> tuple[Room, Room]:
    """One room, as two processes see it."""
    return Room(tmp_path / "room"), Room(tmp_path / "room")


def waits(room: Room, *, alone: bool) -> threading.Thread:
    """Enters in a thread, and stays."""
    thread = threading.Thread(target=room.enter, kwargs={"alone": alone}, daemon=True)
    thread.start()
    return thread


def test_ordinary_tests_share_the_room(rooms: tuple[Room, Room]) -> None:
    for room in rooms:
        room.enter(alone=False)
    for room in rooms:
        room.leave(alone_next=False)
    rooms[0].enter(alone=True)


@pytest.mark.parametrize("second", [False, True])
def test_nobody_enters_beside_a_lone_test(rooms: tuple[Room, Room], second: bool) -> None:
    rooms[0].enter(alone=True)
    thread = waits(rooms[1], alone=second)
    thread.join(0.2)
    assert thread.is_alive()
    rooms[0].leave(alone_next=False)
    thread.join(5)
    assert not thread.is_alive()


def test_a_lone_test_waits_for_those_inside_and_keeps_others_out(tmp_path: Path) -> None:
    inside, lone, late = (Room(tmp_path / "room") for _ in range(3))
    inside.enter(alone=False)
    first = waits(lone, alone=True)
    first.join(0.2)
    second = waits(late, alone=False)
    second.join(0.2)
    assert first.is_alive()
    assert second.is_alive()
    inside.leave(alone_next=False)
    first.join(5)
    assert not first.is_alive()
    assert second.is_alive()
    lone.leave(alone_next=False)
    second.join(5)
    assert not second.is_alive()


def test_lone_tests_in_a_row_keep_the_room(rooms: tuple[Room, Room]) -> None:
    rooms[0].enter(alone=True)
    thread = waits(rooms[1], alone=False)
    rooms[0].leave(alone_next=True)
    thread.join(0.2)
    assert thread.is_alive()
    rooms[0].enter(alone=True)
    thread.join(0.2)
    assert thread.is_alive()
    rooms[0].leave(alone_next=False)
    thread.join(5)
    assert not thread.is_alive()
