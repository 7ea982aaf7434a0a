"""What is expensive to derive from a model file, kept in the user's cache directory.

An entry belongs to one file with one size and one modification time. Entries are written atomically; one that is
stale, damaged or unreadable counts as absent, and a cache that cannot be written only costs time.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import msgspec

# Part of every entry: raise it when the meaning of a cached value changes.
CACHE_VERSION = 1


class _Entry(msgspec.Struct, frozen=True):
    version: int
    path: str
    size: int
    mtime_ns: int
    sha256: str
    value: msgspec.Raw


def cache_home() -> Path:
    """The directory of tfjax in the user's cache directory ($XDG_CACHE_HOME, else ~/.cache). It may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "tfjax"


def load[T](file: Path, kind: str, form: type[T]) -> T | None:
    """The value of `kind` derived earlier from this state of `file`, or None."""
    try:
        entry = msgspec.json.decode(_entry_path(file, kind).read_bytes(), type=_Entry)
        path, size, mtime_ns = _stamp(file)
        fresh = (entry.version, entry.path, entry.size, entry.mtime_ns) == (CACHE_VERSION, path, size, mtime_ns)
        if not fresh or hashlib.sha256(entry.value).hexdigest() != entry.sha256:
            return None
        return msgspec.json.decode(entry.value, type=form)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def store(file: Path, kind: str, value: object) -> None:
    """Keeps `value` for `load`. Failing to do so is not an error."""
    raw = msgspec.json.encode(value)
    try:
        path, size, mtime_ns = _stamp(file)
        digest = hashlib.sha256(raw).hexdigest()
        entry = _Entry(CACHE_VERSION, path, size, mtime_ns, digest, msgspec.Raw(raw))
        write_atomically(_entry_path(file, kind), msgspec.json.encode(entry))
    except OSError:
        return


def _stamp(file: Path) -> tuple[str, int, int]:
    status = file.stat()
    return str(file.resolve()), status.st_size, status.st_mtime_ns


def _entry_path(file: Path, kind: str) -> Path:
    name = hashlib.sha256(str(file.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return cache_home() / "checkpoints" / f"{name}-{kind}.json"


def write_atomically(target: Path, data: bytes) -> None:
    """Replaces a file whole or not at all, making its directory. Raises OSError where it cannot be written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
