"""Lowered programs kept between starts, so that a later start need not trace and lower them.

JAX's compile cache knows a program by its lowered text, and lowering the kernels of all buckets takes longer than
reading what was compiled. So the text itself is kept, under what it was made from: the sources, the versions, the
model's config and the shapes of its arguments. No value of a checkpoint may be a constant of such a program.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax import export

from tfjax.checkpoints.cache import cache_home, write_atomically
from tfjax.engine.timing import code_version
from tfjax.kernels.routes import Route
from tfjax.runtime import processor_tag

log = logging.getLogger(__name__)

type Compile = Callable[[], None]
"""Compiles a lowered program and keeps it for its caller. May be called in any thread."""

PACKAGES = ("jax", "jaxlib", "flax", "numpy", "jax-cuda12-plugin", "jax-cuda13-plugin")
DIGEST_BYTES = 32
UNUSED_S = 30 * 86400
"""A program that no start asked for in this time is removed."""

ALLOWED = [export.DisabledSafetyCheck.custom_call("mosaic_gpu_v2")]
"""Pallas' kernels. They promise nothing to other versions of JAX, and other versions find nothing of ours."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is compiled.

    Attributes:
        name: tells programs apart whose arguments have the same shapes.
        arguments: of `call`; arrays, or their shapes.
        donated: which argument gives its memory away.
        result: anything of the structure of what `call` returns.
    """

    name: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    donated: int
    result: Any

    @property
    def shapes(self) -> list[jax.ShapeDtypeStruct]:
        """Of the arguments' arrays, one after another."""
        return [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(self.arguments)]

    @property
    def donated_leaves(self) -> range:
        """Where the arrays of the donated argument stand among them."""
        start = len(jax.tree.leaves(self.arguments[: self.donated]))
        return range(start, start + len(jax.tree.leaves(self.arguments[self.donated])))

    @property
    def structure(self) -> jax.tree_util.PyTreeDef:
        """Of the result."""
        return jax.tree.structure(self.result)

    def check(self, found: jax.tree_util.PyTreeDef) -> None:
        """Raises TypeError where the result has another structure than is said."""
        if found != self.structure:
            raise TypeError(f"{self.name} returns {found}, and not {self.structure} as it says")


class KeptPrograms:
    """A directory of lowered programs of one model on one device."""

    def __init__(self, directory: Path | None, key: Sequence[str]):
        """`key` is what the programs depend on beside sources, versions, device and settings. None keeps nothing."""
        self._directory = directory
        self._key = [*key, *_surroundings()] if directory else []

    def prepare(self, program: Program, keep: Callable[[Callable[..., Any]], None]) -> Compile:
        """Lower a program, or read it; what is returned compiles it and gives what calls it to `keep`."""
        exported = self._exported(program)
        if exported is None:
            lowered = jax.jit(program.call, donate_argnums=program.donated).lower(*program.arguments)
            program.check(lowered.out_tree)
            return lambda: keep(lowered.compile())
        whole = jax.jit(exported.call, donate_argnums=tuple(program.donated_leaves)).lower(*program.shapes)
        structure = program.structure

        # What stays holds nothing of the program: its arguments may be the cache of a start that fails.
        def compile_it() -> None:
            compiled = whole.compile()
            keep(lambda *given: jax.tree.unflatten(structure, compiled(*jax.tree.leaves(given))))

        return compile_it

    def _exported(self, program: Program) -> export.Exported | None:
        """The lowered program, of this start where no earlier one kept it; None where none can be kept."""
        if self._directory is None:
            return None
        file = self._file(self._directory, program)
        exported = _read(file)
        if exported is not None:
            return exported
        try:
            exported = _export(program)
            _write(file, exported)
        except (OSError, ValueError, NotImplementedError, ImportError) as error:  # no place, or no text that lasts
            log.warning("the lowered program %s is not kept: %s", program.name, str(error)[:300])
        return exported

    def _file(self, directory: Path, program: Program) -> Path:
        tree = str(jax.tree.structure(program.arguments))
        shapes = [f"{leaf.dtype}{list(leaf.shape)}" for leaf in program.shapes]
        digest = hashlib.sha256(json.dumps([*self._key, program.name, tree, shapes]).encode()).hexdigest()
        return directory / f"{digest[:32]}.stablehlo"


NOTHING_KEPT = KeptPrograms(None, ())


def kept_for(module: object, config: object, route: Route) -> KeptPrograms:
    """In the user's cache directory, for device routes; reference operators are lowered in no time.

    `config` is what the module was built by, told whole by its `repr`.
    """
    if route is Route.REFERENCE:
        return NOTHING_KEPT
    return KeptPrograms(cache_home() / "programs", [type(module).__qualname__, repr(config), str(route)])


def _export(program: Program) -> export.Exported:
    """The program with its trees taken apart, of which an exported one can tell only the plainest."""
    tree = jax.tree.structure(program.arguments)

    def flat(*leaves: jax.Array) -> list[jax.Array]:
        result = program.call(*jax.tree.unflatten(tree, leaves))
        program.check(jax.tree.structure(result))
        return jax.tree.leaves(result)

    jitted = jax.jit(flat, donate_argnums=tuple(program.donated_leaves))
    return export.export(jitted, disabled_checks=ALLOWED)(*program.shapes)


def _surroundings() -> list[str]:
    device = jax.devices()[0]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES if _is_installed(name)]
    settings = [f"{name}={os.environ[name]}" for name in sorted(os.environ) if _matters(name)]
    # The host's own arithmetic makes constants, as those of rotations.
    return [code_version(), *versions, device.device_kind, device.client.platform_version, processor_tag(), *settings]


def _is_installed(name: str) -> bool:
    return next(iter(importlib.metadata.Distribution.discover(name=name)), None) is not None


def _matters(variable: str) -> bool:
    """Whether an environment variable may change a program."""
    return variable.startswith(("JAX_", "XLA_")) and "CACHE" not in variable


def _read(file: Path) -> export.Exported | None:
    """The program; None where it is not there, or cannot be used."""
    try:
        if not _is_ours(file.parent):
            return None
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("the lowered program %s is not used: %s", file, error)
        return None
    digest, text = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
    if hashlib.sha256(text).digest() != digest:
        log.warning("the lowered program %s is not used: it is damaged", file)
        return None
    with contextlib.suppress(OSError):  # the place may be read-only
        file.touch()
    return export.deserialize(bytearray(text))


def _is_ours(directory: Path) -> bool:
    """Whether nobody but us and root may write there: whoever may decides what is computed."""
    status = directory.stat()
    return status.st_uid in (os.getuid(), 0) and not status.st_mode & 0o022


def _write(file: Path, exported: export.Exported) -> None:
    """Keeps it, and removes what nobody asked for in a long time.

    Raises:
        OSError: it cannot be written, or could not be trusted later.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_ours(file.parent):
        raise PermissionError(f"{file.parent} may be written by others; make it yours alone (chmod 700)")
    text = bytes(exported.serialize())
    write_atomically(file, hashlib.sha256(text).digest() + text)
    for other in file.parent.glob("*.stablehlo*"):
        with contextlib.suppress(FileNotFoundError):  # another server removes the same ones
            if time.time() - other.stat().st_mtime > UNUSED_S:
                other.unlink()
