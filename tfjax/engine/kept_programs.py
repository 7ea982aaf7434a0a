"""Compiled programs kept between starts, so that a later start need not even lower them.

JAX's own compile cache knows a program by its lowered text, and lowering the kernels of all buckets takes longer than
reading what was compiled. Here a program is known by what it was made from: the sources, the versions, the model's
config and the shapes of its arguments. Only what keeps every value of a checkpoint an argument may be kept so.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import os
import pickle  # noqa: TID251 - of compiled code, which runs as it is read anyhow; see _is_ours
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable

from tfjax.checkpoints.cache import cache_home, write_atomically
from tfjax.engine.compiles import spared
from tfjax.engine.timing import code_version
from tfjax.kernels.routes import Route

log = logging.getLogger(__name__)

type Compile = Callable[[], None]
"""Compiles a lowered program and keeps it for its caller. May be called in any thread."""

PACKAGES = ("jax", "jaxlib", "flax", "jax-cuda12-plugin", "jax-cuda13-plugin")
UNUSED_S = 30 * 86400
"""A program that no start asked for in this time is removed."""


class KeptPrograms:
    """A directory of compiled programs of one model on one device."""

    def __init__(self, directory: Path | None, key: Sequence[str]):
        """`key` is what the programs depend on beside sources, versions, device and settings. None keeps nothing."""
        self._directory = directory
        self._key = [*key, *_surroundings()] if directory else []

    def prepare(self, name: str, arguments: Any, lower: Callable[[], Any], keep: Callable[[Any], None]) -> Compile:
        """Look for a program, and lower it where it is not there; what is returned gives the compiled one to `keep`.

        Args:
            name: tells programs apart whose arguments have the same shapes.
            arguments: arrays, or their shapes.
        """
        file = self._file(name, arguments)
        if file is not None and file.exists() and _is_ours(file.parent):
            return lambda: keep(_read(file) or lower().compile())
        lowered = lower()

        def compile_it() -> None:
            before = spared()
            compiled = lowered.compile()
            keep(compiled)
            # What JAX's cache gave cannot be told whole a second time: on CPU it comes back without its functions.
            if file is not None and spared() == before:
                _write(file, compiled)

        return compile_it

    def _file(self, name: str, arguments: Any) -> Path | None:
        if self._directory is None:
            return None
        leaves, tree = jax.tree.flatten(arguments)
        shapes = [f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves]
        digest = hashlib.sha256(json.dumps([*self._key, name, str(tree), shapes]).encode()).hexdigest()
        return self._directory / f"{digest[:32]}.program"


NOTHING_KEPT = KeptPrograms(None, ())


def kept_for(module: object, config: object, route: Route) -> KeptPrograms:
    """In the user's cache directory, for device routes; reference operators are lowered in no time.

    `config` is what the module was built by, told whole by its `repr`.
    """
    if route is Route.REFERENCE:
        return NOTHING_KEPT
    return KeptPrograms(cache_home() / "programs", [type(module).__qualname__, repr(config), str(route)])


def _surroundings() -> list[str]:
    device = jax.devices()[0]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES if _is_installed(name)]
    settings = [f"{name}={os.environ[name]}" for name in sorted(os.environ) if _matters(name)]
    return [code_version(), *versions, device.device_kind, device.client.platform_version, *settings]


def _is_installed(name: str) -> bool:
    return next(importlib.metadata.Distribution.discover(name=name), None) is not None


def _matters(variable: str) -> bool:
    """Whether an environment variable may change a program."""
    return variable.startswith(("JAX_", "XLA_")) and "CACHE" not in variable


def _is_ours(directory: Path) -> bool:
    """Whether nobody else may write there: whoever may decides what runs."""
    status = directory.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _read(file: Path) -> Any:
    """The program; None where it cannot be loaded."""
    try:
        file.touch()
        return serialize_executable.deserialize_and_load(*pickle.loads(file.read_bytes()))  # noqa: S301 - our own file
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is compiled again
        log.warning("the compiled program %s is not used: %s: %s", file, type(error).__name__, str(error)[:200])
        file.unlink(missing_ok=True)
        return None


def _write(file: Path, compiled: Any) -> None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(file, pickle.dumps(serialize_executable.serialize(compiled)))
        for other in file.parent.glob("*.program"):
            if time.time() - other.stat().st_mtime > UNUSED_S:
                other.unlink(missing_ok=True)
    except Exception as error:  # noqa: BLE001 - a program that is not kept only costs time
        log.warning("the compiled program %s is not kept: %s: %s", file, type(error).__name__, str(error)[:200])
