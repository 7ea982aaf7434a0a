"""Counts compilations: in steady state there must be none. And those of a thread that the compile cache spared."""

from __future__ import annotations

import threading
from typing import Any

import jax.monitoring

_EVENT = "/jax/core/compile/backend_compile_duration"
_HIT = "/jax/compilation_cache/cache_hits"


class _Counter:
    """A number that any thread may raise."""

    def __init__(self) -> None:
        self.value = 0
        self._lock = threading.Lock()

    def on_event(self, event: str, duration_secs: float, **_: Any) -> None:
        del duration_secs
        if event == _EVENT:
            with self._lock:
                self.value += 1


class _Hits(threading.local):
    """Of the compile cache, in this thread."""

    count = 0

    def on_event(self, event: str, **_: Any) -> None:
        self.count += event == _HIT


_counter = _Counter()
_hits = _Hits()
jax.monitoring.register_event_duration_secs_listener(_counter.on_event)
jax.monitoring.register_event_listener(_hits.on_event)


def compiles() -> int:
    """Programs that this process compiled (or took from the compile cache) since this module was imported."""
    return _counter.value


def spared() -> int:
    """Programs that this thread took from JAX's compile cache since this module was imported."""
    return _hits.count
