"""Keys that clients must bring, read from a file."""

from __future__ import annotations

import stat
from pathlib import Path

from tfjax.options import ConfigError


def read_api_keys(path: Path) -> tuple[str, ...]:
    """The keys of an --api-key-file: one a line; empty lines and lines that start with # do not count.

    Raises:
        ConfigError: unreadable, readable by others, or without a usable key.
    """
    source = f"--api-key-file: {str(path)!r}"
    try:
        with path.open(encoding="ascii") as file:
            mode = stat.S_IMODE(path.stat().st_mode)
            lines = [line.strip() for line in file]
    except OSError as error:
        raise ConfigError(f"{source} cannot be read ({error.strerror}); create it with one key a line") from None
    except UnicodeDecodeError:
        raise ConfigError(
            f"{source} has other characters than ASCII; keys travel in a header that carries only those"
        ) from None
    if mode & 0o077:
        raise ConfigError(f"{source} has mode {mode:04o}, so others can read it; run chmod 600 on it")
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ConfigError(f"{source} holds no key; write one a line")
    return keys
