"""Counts compilations: in steady state there must be none."""

from __future__ import annotations

import threading
from typing import Any

import jax.monitoring

_EVENT = "/jax/core/compile/backend_compile_duration"
_lock = threading.Lock()
_count = 0


def _on_event(event: str, _duration_s: float, **_: Any) -> None:
    global _count
    if event == _EVENT:
        with _lock:
            _count += 1


jax.monitoring.register_event_duration_secs_listener(_on_event)


def compiles() -> int:
    """Programs that this process compiled (or took from the compile cache) since this module was imported."""
    return _count
