"""Counts compilations: in steady state there must be none."""

from __future__ import annotations

import threading
from typing import Any

import jax.monitoring

_EVENT = "/jax/core/compile/backend_compile_duration"


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


_counter = _Counter()
jax.monitoring.register_event_duration_secs_listener(_counter.on_event)


def compiles() -> int:
    """Programs that this process compiled (or took from the compile cache) since this module was imported."""
    return _counter.value
