"""JSON objects from a model directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tfjax.checkpoints.errors import CheckpointError

MAX_JSON_BYTES = 256 * 1024 * 1024


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in `file`.

    Raises:
        CheckpointError: the file cannot be read, is too large, or does not hold one JSON object.
    """
    try:
        size = file.stat().st_size
        if size > MAX_JSON_BYTES:
            raise CheckpointError(file, "too large", found=f"{size} bytes", expected=f"at most {MAX_JSON_BYTES} bytes")
        value = json.loads(file.read_bytes())
    except OSError as error:
        raise CheckpointError(file, "cannot be read", found=error.strerror or error) from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(file, "not valid JSON", found=error, remedy="Fetch the file again.") from error
    if not isinstance(value, dict):
        raise CheckpointError(file, "wrong JSON", found=type(value).__name__, expected="an object")
    return value


def read_optional_object(file: Path) -> dict[str, Any]:
    """As `read_object`; an absent file is an empty object."""
    return read_object(file) if file.exists() else {}
