"""Writes a safetensors file piece by piece: the header first, then each tensor, or part of one, where it belongs.

Source: the format's own description: 8 bytes of header size, a JSON header of names, types, shapes and offsets, then
the bytes of all tensors without gaps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

DTYPES: Mapping[str, np.dtype[Any]] = {
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
    "U32": np.dtype(np.uint32),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "BOOL": np.dtype(np.bool_),
}
"""Types by their names in the header."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A tensor that is to be written: the header's name of its type, and its shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def stored_bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


class SafetensorsWriter:
    """A file that is written in any order. Leaving the context closes it; a tensor that was not written is an error."""

    def __init__(self, file: Path, layouts: Mapping[str, Layout], metadata: Mapping[str, str]) -> None:
        """Writes the header. `layouts` are all the tensors."""
        # The widest items first, so that every tensor is aligned to its own.
        order = sorted(layouts, key=lambda name: (-DTYPES[layouts[name].dtype].itemsize, name))
        header: dict[str, Any] = {"__metadata__": dict(metadata)}
        self._starts: dict[str, int] = {}
        end = 0
        for name in order:
            start, end = end, end + layouts[name].stored_bytes
            header[name] = {"dtype": layouts[name].dtype, "shape": layouts[name].shape, "data_offsets": [start, end]}
            self._starts[name] = start
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._layouts = layouts
        self._base = 8 + len(text)
        self._missing = {name: layout.stored_bytes for name, layout in layouts.items()}
        self._file = file.open("xb")
        self._file.write(len(text).to_bytes(8, "little") + text)
        self._file.truncate(self._base + end)

    def write(self, name: str, values: NDArray[Any], place: int | None = None) -> None:
        """Writes a tensor, or the entry `place` of its first axis.

        Raises:
            ValueError: another type or shape than was announced.
        """
        layout = self._layouts[name]
        shape = layout.shape if place is None else layout.shape[1:]
        if values.shape != shape or values.dtype != DTYPES[layout.dtype]:
            raise ValueError(f"{name}: {values.dtype} {values.shape}, announced as {layout.dtype} {shape}")
        data = np.ascontiguousarray(values).tobytes()
        self._file.seek(self._base + self._starts[name] + (place or 0) * len(data))
        self._file.write(data)
        self._missing[name] -= len(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
        missing = sorted(name for name, size in self._missing.items() if size)
        if error is None and missing:
            raise ValueError(f"not written: {', '.join(missing[:4])}")
