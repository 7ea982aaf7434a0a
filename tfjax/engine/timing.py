"""How long one verify forward takes at each width. Decides how much to draft, never what is emitted."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from tfjax import engine, kernels, models
from tfjax.checkpoints.cache import write_atomically

log = logging.getLogger(__name__)

RUNS = 7
SOURCES = (".py", ".json")
"""Code, and tuned tiles and splits."""

SUSPICIOUS = 0.97
"""A width this much faster than a narrower one was measured badly."""


def measure(widths: Sequence[int], run: Callable[[int], None]) -> dict[int, float]:
    """Fastest of RUNS milliseconds per width, after one untimed run. `run(width)` does one forward and waits for it."""
    table = {width: fastest_ms(run, width) for width in widths}
    for _ in range(2):
        for narrow, wide in itertools.pairwise(widths):
            if table[wide] < SUSPICIOUS * table[narrow]:
                for width in (narrow, wide):
                    table[width] = min(table[width], fastest_ms(run, width))
    return table


def fastest_ms(run: Callable[[int], None], width: int) -> float:
    """Fastest of RUNS milliseconds after one untimed run."""
    run(width)
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run(width)
        times.append(1000 * (time.perf_counter() - start))
    return min(times)


def code_version(*packages: ModuleType) -> str:
    """A hash of the sources that decide how long a forward takes; another one means that times are measured anew."""
    digest = hashlib.sha256()
    for package in packages or (kernels, models, engine):
        for file in sorted(Path(package.__path__[0]).rglob("*.*")):
            if file.suffix in SOURCES:
                digest.update(file.read_bytes())
    return digest.hexdigest()


def cached(
    directory: Path, key: Sequence[str], widths: Sequence[int], measure_now: Callable[[], dict[int, float]]
) -> tuple[dict[int, float], bool]:
    """The table measured earlier for the same key (device, model shape, code version), else a new one, which is kept.

    The second value tells whether it was measured now. A bad or unwritable file only costs a new measurement.
    """
    file = directory / f"window-ms-{hashlib.sha256(json.dumps(list(key)).encode()).hexdigest()[:16]}.json"
    try:
        stored = {int(width): float(ms) for width, ms in json.loads(file.read_text()).items()}
        if sorted(stored) == sorted(widths) and all(0 < ms < math.inf for ms in stored.values()):
            return stored, False
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        pass
    table = measure_now()
    try:
        write_atomically(file, json.dumps(table).encode())
    except OSError as error:
        log.warning("window times are not kept: %s", error)
    return table, True
