"""Runs the blocks of the goals, each in a process of its own, and prints the table.

A kernel that hangs or breaks the device's context ends its own block alone, and each block has the memory to itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.blocks import Blocks
from benchmarks.goals.names import EXPECTED_S
from benchmarks.goals.table import table

GRACE_S = 20.0
"""A block that goes on for so long after its share of the time is ended."""

type Command = Callable[[str, float, Path], Sequence[str]]
"""(block, seconds, output) -> what runs it."""


def measure_goals(
    blocks: Blocks, kernels: str, only: Sequence[str] | None, peer_python: str, model: str | None = None
) -> None:
    """All blocks, or those named, in their order; then the table of what is known.

    Raises:
        ValueError: a block that there is not.
    """
    unknown = set(only or ()) - set(EXPECTED_S)
    if unknown:
        raise ValueError(f"--block {', '.join(sorted(unknown))} is not known; give some of: {', '.join(EXPECTED_S)}")

    def command(name: str, seconds: float, output: Path) -> Sequence[str]:
        flags = ["--seconds", f"{seconds:.0f}", "--kernels", kernels, "--peer-python", peer_python]
        flags += ["--model", model] if model else []
        return [sys.executable, "-m", "benchmarks.goals.child", name, *flags, "--output", str(output)]

    run_children(blocks, only or list(EXPECTED_S), command)
    told = table(blocks.found)
    print(told, flush=True)


def run_children(blocks: Blocks, names: Sequence[str], command: Command) -> None:
    """Each block gets the time that is left, but for what the others are expected to take."""
    with tempfile.TemporaryDirectory() as folder:
        for place, name in enumerate(names):
            later_s = sum(EXPECTED_S[other] for other in names[place + 1 :])
            seconds = max(EXPECTED_S[name], blocks.left_s - later_s) - GRACE_S
            output = Path(folder) / f"{place}.json"
            print(f"-- {name}", flush=True)
            blocks.run(name, EXPECTED_S[name], partial(_child, blocks, name, seconds, output, command))


def _child(blocks: Blocks, name: str, seconds: float, output: Path, command: Command) -> dict[str, Any]:
    """What the block wrote, even where it ended badly; that makes it a failed one."""
    # A session of its own, so that what the block started ends with it.
    process = subprocess.Popen(list(command(name, seconds, output)), start_new_session=True)
    error = ""
    try:
        code = process.wait(min(seconds + GRACE_S, max(1.0, blocks.left_s)))
        error = f"its process ended with code {code}" if code else ""
    except subprocess.TimeoutExpired:
        error = f"not done within {seconds + GRACE_S:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    found: dict[str, Any] = json.loads(output.read_text("utf-8")) if output.exists() else {}
    if error or found.get("failed"):
        blocks.failed.append(name)
        print(f"{name}: {error or 'a part of it failed'}", flush=True)
    return found | ({"error": error} if error else {})
