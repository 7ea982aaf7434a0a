"""What a model is, without reading its weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfjax.checkpoints.checkpoint import TensorInfo
from tfjax.checkpoints.opening import open_checkpoint


def summarize(path: Path) -> dict[str, Any]:
    """Describes a model in JSON values.

    Keys: path, format, architecture, config (config.json's form), parameters (distinct weights: a tied head counts
    once), tensors, bytes and bytes_by_type (as stored), files.

    Raises:
        CheckpointError: as `open_checkpoint` does.
    """
    checkpoint = open_checkpoint(path)
    infos = checkpoint.tensors.infos
    return {
        "path": str(checkpoint.path),
        "format": checkpoint.format,
        "architecture": checkpoint.architecture,
        "config": dict(checkpoint.config),
        "parameters": sum(math.prod(info.shape) for info in infos.values()),
        "tensors": len(infos),
        "bytes": sum(info.stored_bytes for info in infos.values()),
        "bytes_by_type": _bytes_by_type(infos),
        "files": sorted({str(info.file) for info in infos.values()}),
    }


def _bytes_by_type(infos: Mapping[str, TensorInfo]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for info in infos.values():
        totals[info.dtype] = totals.get(info.dtype, 0) + info.stored_bytes
    return dict(sorted(totals.items(), key=lambda item: -item[1]))
