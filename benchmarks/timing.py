"""How long a program of the device takes, called many times in a row."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax

RUNS, REPEATS = 20, 3


def queued_ms(call: Callable[[], Any], *, runs: int = RUNS, repeats: int = REPEATS) -> list[float]:
    """Milliseconds of one call among `runs` that are queued at once, for each repeat. It was called before."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(runs):
            last = call()
        jax.block_until_ready(last)
        found.append((time.perf_counter() - start) / runs * 1e3)
    return found


def first_s(call: Callable[[], Any]) -> float:
    """Seconds of a call that compiles."""
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start
