"""A GGUF file's metadata and tensor table, read once by the gguf package and cached.

The package's reader spends its time in the vocabulary's arrays, so what it found is kept: a small index (metadata and
tensor table) and, apart from it, the vocabulary, which only the tokenizer needs.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfjax.checkpoints import cache
from tfjax.checkpoints.errors import CheckpointError

if TYPE_CHECKING:
    from gguf import GGUFReader

MAGIC = b"GGUF"

type Value = str | int | float | bool | list[str | int | float | bool]

_VOCABULARY = {
    "tokenizer.ggml.tokens": "tokens",
    "tokenizer.ggml.token_type": "types",
    "tokenizer.ggml.scores": "scores",
    "tokenizer.ggml.merges": "merges",
}
_DAMAGED = "damaged or truncated GGUF file"
_FETCH_AGAIN = "Fetch the file again."


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A row of the tensor table: GGUF name and type, shape slowest axis first, and where the bytes lie."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class GgufIndex:
    """Metadata without the vocabulary's arrays, and the tensor table.

    Attributes:
        metadata: by GGUF key.
        vocabulary_size: entries of tokenizer.ggml.tokens; 0 when the file has no tokenizer.
        tensors: in file order.
    """

    metadata: dict[str, Value]
    vocabulary_size: int
    tensors: tuple[GgufTensor, ...]


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """The vocabulary's arrays; those that the file lacks are empty."""

    tokens: list[str]
    types: list[int]
    scores: list[float]
    merges: list[str]


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A GGUF file whose index has been read."""

    path: Path
    index: GgufIndex

    @property
    def metadata(self) -> Mapping[str, Value]:
        return self.index.metadata

    def vocabulary(self) -> GgufVocabulary:
        """Reads the vocabulary, from the cache when it is there.

        Raises:
            CheckpointError: the file cannot be read any more.
        """
        cached = cache.load(self.path, "vocabulary", GgufVocabulary)
        return cached if cached is not None else _read_and_keep(self.path)[1]


def open_gguf(path: Path) -> GgufFile:
    """Reads the index of a GGUF file, from the cache when it is there.

    Raises:
        CheckpointError: not a GGUF file, a damaged or truncated one, or one that cannot be read.
    """
    index = cache.load(path, "index", GgufIndex)
    return GgufFile(path, index if index is not None else _read_and_keep(path)[0])


def _read_and_keep(path: Path) -> tuple[GgufIndex, GgufVocabulary]:
    reader = _open_reader(path)
    try:
        vocabulary = _vocabulary(reader)
        index = GgufIndex(_metadata(reader), len(vocabulary.tokens), tuple(_tensors(reader)))
    except (ValueError, IndexError, OverflowError) as error:
        raise CheckpointError(path, _DAMAGED, found=error, remedy=_FETCH_AGAIN) from error
    cache.store(path, "index", index)
    cache.store(path, "vocabulary", vocabulary)
    return index, vocabulary


def _open_reader(path: Path) -> GGUFReader:
    from tfjax.checkpoints.gguf_reader import BoundedReader

    try:
        with path.open("rb") as file:
            magic = file.read(4)
        if magic != MAGIC:
            raise CheckpointError(path, "not a GGUF file", found=f"first bytes {magic!r}", expected=repr(MAGIC))
        reader = BoundedReader(path)
    except OSError as error:
        raise CheckpointError(path, "cannot be read", found=error.strerror or error) from error
    except CheckpointError:
        raise
    except (ValueError, IndexError, KeyError, OverflowError, RecursionError) as error:
        raise CheckpointError(path, _DAMAGED, found=error, remedy=_FETCH_AGAIN) from error
    if reader.byte_order == "S":
        raise CheckpointError(
            path, "GGUF of the other byte order", remedy="Convert it with gguf's gguf-convert-endian."
        )
    return reader


def _metadata(reader: GGUFReader) -> dict[str, Value]:
    return {
        key: typing.cast("Value", field.contents())
        for key, field in reader.fields.items()
        if key not in _VOCABULARY and not key.startswith("GGUF.")
    }


def _vocabulary(reader: GGUFReader) -> GgufVocabulary:
    arrays: dict[str, Any] = {}
    for key, name in _VOCABULARY.items():
        field = reader.get_field(key)
        arrays[name] = field.contents() if field is not None else []
    return GgufVocabulary(**arrays)


def _tensors(reader: GGUFReader) -> list[GgufTensor]:
    return [
        GgufTensor(
            name=tensor.name,
            type=tensor.tensor_type.name,
            shape=tuple(reversed([int(size) for size in tensor.shape])),
            offset=tensor.data_offset,
            stored_bytes=tensor.n_bytes,
        )
        for tensor in reader.tensors
    ]
