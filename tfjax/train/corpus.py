"""Text that every machine has: the sources of Python's library and of installed packages, some files held out whole."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import platform
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HELD_OUT_ONE_IN = 50
SKIPPED_FOLDERS = frozenset({"site-packages", "_vendor", "__pycache__"})
FILE_CHARS = (200, 256 * 1024)
LONGEST_LINE = 2000
MOST_DIGITS = 0.15
PYTHON_LICENSE = "PSF-2.0"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of code.

    Attributes:
        module: its dotted name, which decides whether it is held out; a package's begins with the package.
    """

    module: str
    text: str

    @property
    def held_out(self) -> bool:
        return is_held_out(self.module)


@dataclass(frozen=True, slots=True)
class Sources:
    """All files that are used, in an order that depends on the installed versions alone.

    Attributes:
        versions: by the name of what they were taken from.
        licenses: the same, as the packages state them.
        left_out: how many files were not used, by reason.
    """

    files: tuple[SourceFile, ...]
    versions: dict[str, str]
    licenses: dict[str, str]
    left_out: dict[str, int]

    @property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(f"{file.module}\0{file.text}\0".encode())
        return digest.hexdigest()


class MissingPackage(ValueError):
    """A package whose sources were asked for is not there."""


def is_held_out(module: str) -> bool:
    """Whether a module's file is kept for measuring. Its name alone decides, so that versions agree on it."""
    return int(hashlib.sha256(module.encode()).hexdigest()[:8], 16) % HELD_OUT_ONE_IN == 0


def read_sources(packages: Sequence[str] = (), library: Path | None = None) -> Sources:
    """Read Python's library and the packages, each in the order of its paths.

    Files that are too short or long, that are mostly tables of numbers or that say what another one said are left out.

    Args:
        library: where Python's library is; None for this Python's own.

    Raises:
        MissingPackage: naming the package and how to install it.
    """
    roots = [("", library or Path(sysconfig.get_path("stdlib")))]
    versions, licenses = {"python": platform.python_version()}, {"python": PYTHON_LICENSE}
    for name in packages:
        roots.append((f"{name}.", _root(name)))
        distribution = importlib.metadata.packages_distributions().get(name, [name])[0]
        versions[name], licenses[name] = importlib.metadata.version(distribution), _license(distribution)
    files: dict[str, SourceFile] = {}
    left_out: Counter[str] = Counter()
    for prefix, root in roots:
        for module, path in _modules(prefix, root):
            text = _read(path)
            reason = unsuitable(text) or ("said before" if text in files else None)
            if reason:
                left_out[reason] += 1
            else:
                files[text] = SourceFile(module, text)
    return Sources(tuple(files.values()), versions, licenses, dict(sorted(left_out.items())))


def unsuitable(text: str) -> str | None:
    """Why a text is not used; None where it is."""
    if not FILE_CHARS[0] <= len(text) <= FILE_CHARS[1]:
        return "too short or too long"
    if max(map(len, text.split("\n"))) > LONGEST_LINE:
        return "not written by hand"
    if sum(map(text.count, "0123456789")) > MOST_DIGITS * sum(map(len, text.split())):
        return "mostly numbers"
    return None


def _root(package: str) -> Path:
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackage(f"there is no package {package!r} here to read; install it, or leave --also {package} out")
    return Path(next(iter(spec.submodule_search_locations)))


def _license(distribution: str) -> str:
    """What the package's metadata say, in few words."""
    metadata = importlib.metadata.metadata(distribution).json
    classified = metadata.get("classifier", [])
    named = [entry.rpartition(" :: ")[2] for entry in classified if entry.startswith("License :: ")]
    stated = metadata.get("license_expression") or ", ".join(named) or metadata.get("license") or "not stated"
    return str(stated).partition("\n")[0]


def _modules(prefix: str, root: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if not SKIPPED_FOLDERS & set(parts):
            yield prefix + ".".join(parts).removesuffix(".__init__"), path


def _read(path: Path) -> str:
    """The file's text, "" where it is no UTF-8."""
    try:
        return path.read_text(encoding="utf-8").replace("\0", "")
    except (OSError, UnicodeDecodeError):
        return ""
