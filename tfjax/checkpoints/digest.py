"""Which weights a checkpoint has, to the bit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from tfjax.checkpoints import cache
from tfjax.checkpoints.checkpoint import Checkpoint

KIND = "sha256"


def weights_sha256(checkpoint: Checkpoint, progress: Callable[[str, float], None]) -> str:
    """SHA-256 of the file of weights; of several files, that of the lines that `sha256sum` prints for them, by name.

    A file is read once; later its hash comes from the user's cache, as long as size and time are the same.

    Raises:
        OSError: a file cannot be read.
    """
    files = sorted({info.file for info in checkpoint.tensors.infos.values()})
    digests = {}
    for place, file in enumerate(files):
        known = cache.load(file, KIND, str)
        if known is None:
            progress("hashing the weights", place / len(files))
        digests[file.name] = known or _hash_now(file)
    if len(digests) == 1:
        return next(iter(digests.values()))
    lines = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    return hashlib.sha256(lines.encode()).hexdigest()


def _hash_now(file: Path) -> str:
    with file.open("rb") as data:
        digest = hashlib.file_digest(data, "sha256").hexdigest()
    cache.store(file, KIND, digest)
    return digest
