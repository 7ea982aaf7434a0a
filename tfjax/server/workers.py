"""A small bounded pool for work that would hold up the event loop: parsing, templates, tokenisation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tfjax.server.errors import unavailable


class Workers:
    """At most `threads` jobs run and `max_pending` wait; more are refused with 503."""

    def __init__(self, threads: int = 2, max_pending: int = 128) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tfjax-text")
        self._limit = threads + max_pending
        self._pending = 0
        self._lock = threading.Lock()

    async def run[T](self, job: Callable[[], T]) -> T:
        with self._lock:
            if self._pending >= self._limit:
                raise unavailable(f"{self._pending} requests are being read already; try again.", "overloaded")
            self._pending += 1
        future = self._pool.submit(job)
        future.add_done_callback(self._done)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _done(self, _: object) -> None:
        with self._lock:
            self._pending -= 1
