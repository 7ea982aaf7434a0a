"""A directory that is there whole or not at all, also where its writer is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfjax.checkpoints.errors import CheckpointError


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """An empty hidden directory beside `target`, which gets that name when the block ends well, and is removed else.

    A killed writer leaves it behind; the next one to `target` takes it over. The lock on it ends with the process that
    holds it, so that one at work is told from one that was killed.

    Raises:
        CheckpointError: `target` exists, or another process writes it.
    """
    _check_new(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.unfinished")
    unfinished.mkdir(mode=0o700, exist_ok=True)
    opened = os.open(unfinished, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _lock(opened, unfinished)
        _check_new(target)  # whoever held the lock may have finished it
        for left in unfinished.iterdir():
            left.unlink()
        try:
            yield unfinished
            unfinished.chmod(0o755)
            unfinished.rename(target)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    finally:
        os.close(opened)


def _check_new(target: Path) -> None:
    if target.exists():
        raise CheckpointError(target, "exists already", expected="a new directory", remedy="Remove it or name another.")


def _lock(opened: int, unfinished: Path) -> None:
    with contextlib.suppress(OSError):  # a file system without locks
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(
                unfinished, "is being written", expected="one writer", remedy="Wait for the other process or end it."
            ) from None
