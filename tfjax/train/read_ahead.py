"""What a generator yields, made in a thread of its own while the caller waits for the device."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import Empty, Full, Queue

LOOK_S = 0.05
"""How long either side waits before it looks whether the other has stopped."""


@contextmanager
def read_ahead[T](source: Iterator[T], most: int) -> Iterator[Iterator[T]]:
    """Read at most `most` values ahead. Leaving ends the thread; what the source raises is raised to the reader."""
    found: Queue[T] = Queue(most)
    left = threading.Event()

    def work() -> None:
        for value in source:
            while not left.is_set():
                with contextlib.suppress(Full):
                    found.put(value, timeout=LOOK_S)
                    break
            if left.is_set():
                return

    with ThreadPoolExecutor(1, "read-ahead") as threads:
        working = threads.submit(work)
        try:
            yield _read(found, working)
        finally:
            left.set()


def _read[T](found: Queue[T], working: Future[None]) -> Iterator[T]:
    while True:
        finished = working.done()  # asked first: what was put before it is still read
        try:
            yield found.get(timeout=LOOK_S)
        except Empty:
            if finished:
                working.result()
                return
