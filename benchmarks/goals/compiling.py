"""Seconds to compile all programs of a start, with an empty cache and with a full one, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.blocks import Blocks

CHILD = (sys.executable, "-m", "benchmarks.goals.compile_child")
KINDS = {"target": (), "target and drafter": ("--drafter",)}
CACHES = {"cold": 65.0, "warm": 25.0}
"""Seconds that the process takes, the start of jax included."""


def measure_compiling(blocks: Blocks, kernels: str, more: Sequence[str] = ()) -> None:
    """`more` are further flags of the child."""
    with tempfile.TemporaryDirectory() as folder:
        for kind, flags in KINDS.items():
            words = [*flags, "--kernels", kernels, *more]
            for cache, expected_s in CACHES.items():
                place = Path(folder) / kind.replace(" ", "-")
                blocks.run(f"{kind}, {cache}", expected_s, partial(_compiled, words, place, f"{kind}, {cache} cache"))


def _compiled(words: Sequence[str], cache: Path, name: str) -> dict[str, Any]:
    """What the child says in its last line.

    Raises:
        RuntimeError: it failed.
    """
    environ = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"), "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run([*CHILD, *words], capture_output=True, text=True, env=environ, check=False)
    if done.returncode:
        raise RuntimeError(f"compiling ended with code {done.returncode}: {done.stderr.strip()[-1500:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"{name}: {found['value']:.1f} s {found['phases_s']}, {found['programs']} programs", flush=True)
    return found
