"""Compiling several programs at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from tfjax.engine.kept_programs import Compile
from tfjax.engine.weights import Progress

type Prepare = Callable[[], Compile]
"""Traces and lowers a program."""


def compile_all(programs: Sequence[Prepare], phase: str, progress: Progress) -> None:
    """Lower the programs one after another, and compile each in a thread as soon as it is lowered.

    Lowering holds Python's lock, so that threads would not make it faster. They would change its order, and with it the
    numbers that Mosaic puts in the names of kernels: the compile cache would not know the programs again.
    """
    steps = 2 * len(programs)
    progress(phase, 0.0)
    with ThreadPoolExecutor(max_workers=min(len(programs), os.cpu_count() or 1)) as pool:
        compiling = []
        for lowered, program in enumerate(programs, start=1):
            compiling.append(pool.submit(program()))
            progress(phase, lowered / steps)
        for compiled, job in enumerate(as_completed(compiling), start=1):
            job.result()
            progress(phase, (len(programs) + compiled) / steps)
