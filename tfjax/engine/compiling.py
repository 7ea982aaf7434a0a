"""Compiling several programs at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from tfjax.engine.weights import Progress


def compile_all(jobs: Sequence[Callable[[], None]], phase: str, progress: Progress) -> None:
    """Run the jobs in threads: XLA works outside Python's lock."""
    progress(phase, 0.0)
    with ThreadPoolExecutor(max_workers=min(len(jobs), os.cpu_count() or 1)) as pool:
        for done, job in enumerate(as_completed([pool.submit(job) for job in jobs]), start=1):
            job.result()
            progress(phase, done / len(jobs))
