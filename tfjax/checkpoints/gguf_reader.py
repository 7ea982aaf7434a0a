"""The gguf package's reader, bounded and without the cost of slicing a memory map."""

from __future__ import annotations

import numpy as np
from gguf import GGUFReader, ReaderField, ReaderTensor
from numpy.typing import NDArray


class _Bytes:
    """A file's bytes; a slice past the end raises instead of coming back short.

    The reader takes counts from the file. Without this a large count over missing data makes it loop on empty slices.
    """

    def __init__(self, data: NDArray[np.uint8]) -> None:
        # A plain view: slicing a np.memmap a hundred thousand times costs seconds.
        self._data = data.view(np.ndarray)

    def __getitem__(self, window: slice) -> NDArray[np.uint8]:
        if window.stop > self._data.size or window.start < 0:
            raise ValueError(f"data at bytes {window.start}..{window.stop}, but the file has {self._data.size} bytes")
        return self._data[window]


class BoundedReader(GGUFReader):
    """GGUFReader over `_Bytes`: same results, four times faster on a vocabulary, ValueError on truncated files."""

    @property  # type: ignore[override]
    def data(self) -> _Bytes:
        return self._bytes

    @data.setter
    def data(self, value: NDArray[np.uint8]) -> None:
        self._bytes = _Bytes(value)

    def _build_tensors(self, start_offs: int, fields: list[ReaderField]) -> None:
        """One by one, so that an error can name the tensor."""
        built: dict[str, ReaderTensor] = {}
        for field in fields:
            try:
                super()._build_tensors(start_offs, [field])
            except (ValueError, KeyError) as error:
                raise ValueError(f"tensor {field.name}: {error}") from error
            if field.name in built:
                raise ValueError(f"tensor {field.name} is in the file twice")
            built[field.name] = self.tensors[0]
        self.tensors = list(built.values())
