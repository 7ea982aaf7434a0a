"""Keeps tests that measure time apart from all others, where several processes share the tests of a run."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

MARK = "alone"


class Room:
    """Where tests run: any number of ordinary ones at once, or one process's lone tests and nobody else.

    Whoever enters passes a gate, which a lone test keeps shut, so that others cannot keep it waiting by taking turns.
    Locks end with the process that holds them.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._gate, self._room = (os.open(directory / name, os.O_RDWR | os.O_CREAT) for name in ("gate", "room"))
        self._alone = False

    def enter(self, *, alone: bool) -> None:
        if self._alone:
            return
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        fcntl.flock(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        self._alone = alone
        if not alone:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def leave(self, *, alone_next: bool) -> None:
        """The next test goes on where this one was alone if it has to be alone, too."""
        if self._alone and alone_next:
            return
        for lock in (self._room, self._gate):
            fcntl.flock(lock, fcntl.LOCK_UN)
        self._alone = False


_rooms: dict[str, Room] = {}


def room_of_this_run() -> Room | None:
    """None where one process runs all tests."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return None
    if run not in _rooms:
        _rooms[run] = Room(Path(tempfile.gettempdir()) / f"tfjax-tests-{run}")
    return _rooms[run]


def is_alone(item: pytest.Item | None) -> bool:
    return item is not None and item.get_closest_marker(MARK) is not None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Waits outside of the test's own timeout."""
    room = room_of_this_run()
    if room is None:
        return (yield)
    room.enter(alone=is_alone(item))
    try:
        return (yield)
    finally:
        room.leave(alone_next=is_alone(nextitem))
