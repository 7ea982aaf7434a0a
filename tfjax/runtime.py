"""The one place that sets up jax's environment, before jax is imported."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tfjax.checkpoints.cache import cache_home

NUMERIC_VARIABLES = (
    "JAX_DEFAULT_MATMUL_PRECISION",
    "JAX_DEFAULT_PRNG_IMPL",
    "JAX_DISABLE_JIT",
    "JAX_ENABLE_X64",
    "JAX_NUMPY_DTYPE_PROMOTION",
    "JAX_OPTIMIZATION_LEVEL",
    "JAX_RANDOM_SEED_OFFSET",
    "JAX_THREEFRY_PARTITIONABLE",
    "NVIDIA_TF32_OVERRIDE",
)
"""Variables that would change what is computed, and with it the tokens."""

HARMLESS_XLA_FLAGS = (
    "--xla_cmd_buffer_trace_cache_size",
    "--xla_dump_",
    "--xla_force_host_platform_device_count",
    "--xla_gpu_command_buffer",
    "--xla_gpu_cuda_data_dir",
    "--xla_gpu_enable_command_buffer",
)
"""Beginnings of XLA flags that change no number; any other flag may."""

GPU_MEMORY_SHARE = "0.9"

GPU_GRAPHS = "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL,+DYNAMIC_SLICE_FUSION"
"""Loops and branches join the graphs of kernels that XLA launches: else the host waits for the device at each turn."""

CUDA_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")
"""Other platforms' XLA may end the process over flags that it does not know."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What `prepare_runtime` did.

    Attributes:
        compile_cache: where compiled programs are kept; None when no directory can be written.
        set: variables that were set.
        ignored: variables (or XLA flags) of the user that were taken out because they would change the tokens.
    """

    compile_cache: Path | None
    set: Mapping[str, str]
    ignored: tuple[str, ...]

    def lines(self) -> list[str]:
        """The same in words, for the start-up output."""
        place = self.compile_cache or "off, no directory can be written; every start compiles again"
        lines = [f"compile cache: {place}"]
        if self.ignored:
            lines.append(f"ignored, as they would change the tokens: {', '.join(self.ignored)}")
        return lines


def prepare_runtime(environ: MutableMapping[str, str] = os.environ) -> Runtime:
    """Sets compile cache and memory share, and takes out what would change numbers. What the user set stays otherwise.

    Raises:
        RuntimeError: jax is imported already and has read the environment.
    """
    if environ is os.environ and "jax" in sys.modules:
        raise RuntimeError("prepare_runtime came after the first import of jax, which reads the environment once")
    ignored = _remove_numeric(environ)
    wanted = {}
    if "XLA_PYTHON_CLIENT_MEM_FRACTION" not in environ:
        wanted["XLA_CLIENT_MEM_FRACTION"] = GPU_MEMORY_SHARE
    cache = _compile_cache(environ)
    if cache is not None:
        wanted["JAX_COMPILATION_CACHE_DIR"] = str(cache)
        # Every program is kept: small ones add up to most of a cold start.
        wanted["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        wanted["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    if "--xla_gpu_enable_command_buffer" not in environ.get("XLA_FLAGS", "") and any(map(find_spec, CUDA_PLUGINS)):
        environ["XLA_FLAGS"] = f"{environ.get('XLA_FLAGS', '')} {GPU_GRAPHS}".strip()
    new = {name: value for name, value in wanted.items() if name not in environ}
    environ.update(new)
    return Runtime(cache, new, ignored)


def _remove_numeric(environ: MutableMapping[str, str]) -> tuple[str, ...]:
    ignored = [f"{name}={environ.pop(name)}" for name in NUMERIC_VARIABLES if name in environ]
    flags = environ.get("XLA_FLAGS", "").split()
    kept = [flag for flag in flags if flag.startswith(HARMLESS_XLA_FLAGS)]
    if len(kept) < len(flags):
        ignored += [flag for flag in flags if flag not in kept]
        environ["XLA_FLAGS"] = " ".join(kept)
    return tuple(ignored)


def _compile_cache(environ: Mapping[str, str]) -> Path | None:
    chosen = environ.get("JAX_COMPILATION_CACHE_DIR")
    path = Path(chosen) if chosen else cache_home() / "jax" / processor_tag()
    try:
        # Compiled programs are run as they are read, so nobody else may write them.
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return path if os.access(path, os.W_OK | os.X_OK) else None


def processor_tag() -> str:
    """Tells processors apart whose compiled programs differ: a home directory may be shared by several machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        kept = sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    except OSError:
        kept = [platform.processor()]
    return hashlib.sha256("\n".join([platform.machine(), *kept]).encode()).hexdigest()[:12]
