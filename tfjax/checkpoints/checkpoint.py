"""What an opened checkpoint offers, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from numpy.typing import NDArray

from tfjax.checkpoints.affine import AFFINE, AffineForm, Packed
from tfjax.checkpoints.gguf_affine import FORMS
from tfjax.checkpoints.gguf_index import GgufFile

_BLOCKS = "Q"
"""Beginning of the names of GGUF's block types."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A stored tensor, known without reading its data.

    Attributes:
        shape: as `TensorSource.read` returns it ([out, in] for a matrix).
        dtype: the stored type: F32, F16, BF16, a GGUF block type such as Q4_1, or AFFINE and its bits for a packed one.
        file: where the data lies.
        stored_bytes: size in the file.
    """

    shape: tuple[int, ...]
    dtype: str
    file: Path
    stored_bytes: int

    @property
    def packed_type(self) -> str:
        """AFFINE and its bits, as the tensor is where it stays packed; empty for one that has no such form."""
        if self.dtype in FORMS:
            return f"{AFFINE}{FORMS[self.dtype].bits}"
        return self.dtype if self.dtype.startswith(AFFINE) else ""

    @property
    def quantized(self) -> bool:
        """Whether it holds codes, of whatever form."""
        return self.dtype.startswith((AFFINE, _BLOCKS))


class TensorSource(Protocol):
    """Tensors by their Hugging Face names, read one at a time."""

    @property
    def infos(self) -> Mapping[str, TensorInfo]:
        """Every tensor of the checkpoint; reading this touches no tensor data."""

    def read(self, name: str) -> NDArray[Any]:
        """The tensor as float32, float16 or (ml_dtypes) bfloat16; block types are dequantized to float32.

        A drafter's token maps come as they are: `d2t` as integers, `t2d` as bool.

        Raises:
            CheckpointError: no such tensor, an unsupported type, or a file that changed since it was opened.
        """


@runtime_checkable
class PackedSource(TensorSource, Protocol):
    """Tensors of which some may be stored in affine form."""

    def packed(self, name: str) -> tuple[Packed, AffineForm] | None:
        """Codes, scales and biases of a matrix [out, in] whose `packed_type` says so; None for any other tensor.

        Raises:
            CheckpointError: as `read` does, or numbers that this form cannot hold.
        """


@dataclass(frozen=True, slots=True)
class HfTokenizerFiles:
    """A directory with tokenizer.json and, perhaps, tokenizer_config.json and chat_template.jinja."""

    directory: Path


@dataclass(frozen=True, slots=True)
class GgufTokenizer:
    """A tokenizer that is to be rebuilt from a GGUF file's metadata."""

    file: GgufFile


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened model.

    Attributes:
        path: the directory or file.
        format: how it is stored.
        architecture: the Hugging Face class name, such as LlamaForCausalLM.
        config: in the form of config.json, translated from the metadata for GGUF.
        generation_config: in the form of generation_config.json; empty when there is none.
        tensors: the weights.
        tokenizer: where the tokenizer comes from.
    """

    path: Path
    format: Literal["safetensors", "gguf"]
    architecture: str
    config: Mapping[str, Any]
    generation_config: Mapping[str, Any]
    tensors: TensorSource
    tokenizer: HfTokenizerFiles | GgufTokenizer
