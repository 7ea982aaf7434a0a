"""Tensors of a GGUF file under their Hugging Face names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints.affine import AffineForm, Packed
from tfjax.checkpoints.checkpoint import TensorInfo
from tfjax.checkpoints.errors import CheckpointError
from tfjax.checkpoints.gguf_affine import FORMS, affine_of
from tfjax.checkpoints.gguf_index import GgufFile, GgufTensor
from tfjax.checkpoints.gguf_names import ROPE_DIVISORS, GgufPiece, hf_pieces

SUPPORTED_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K")
_PLAIN = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16)}


def table(file: GgufFile) -> dict[str, GgufPiece]:
    """The tensors by Hugging Face name.

    Raises:
        CheckpointError: a tensor is unknown, has a type that is not supported, or is there twice.
    """
    architecture = str(file.metadata.get("general.architecture"))
    pieces: dict[str, GgufPiece] = {}
    for tensor in file.index.tensors:
        _check_type(file.path, tensor)
        if tensor.name == ROPE_DIVISORS:
            continue
        found = dict(hf_pieces(tensor, architecture))
        if not found:
            expected = f"a tensor of architecture {architecture}"
            raise CheckpointError(file.path, "unknown tensor", tensor=tensor.name, expected=expected)
        for name in found.keys() & pieces.keys():
            both = f"{pieces[name].tensor.name} and {tensor.name}"
            raise CheckpointError(file.path, "two tensors for one", tensor=name, found=both, expected="one of them")
        pieces |= found
    return pieces


def rope_divisors(file: GgufFile) -> NDArray[np.float32] | None:
    """What each RoPE inverse frequency is divided by, [head_dim / 2]; None when the file does not scale them so."""
    for tensor in file.index.tensors:
        if tensor.name == ROPE_DIVISORS:
            return _read(file.path, GgufPiece(tensor, tensor.shape)).astype(np.float32).ravel()
    return None


class GgufTensors:
    """PackedSource over a GGUF file, with the rows of `llama`'s Q and K in Hugging Face order.

    Tensors of types that `gguf_affine` knows can be had packed; of every type they are read dequantized.
    """

    def __init__(self, file: GgufFile, pieces: Mapping[str, GgufPiece], config: Mapping[str, Any]) -> None:
        self._path = file.path
        self._pieces = pieces
        self._heads: dict[str, int] = {}
        if config["model_type"] == "llama":
            self._heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
        self._infos = {
            name: TensorInfo(piece.shape, piece.tensor.type, file.path, _span(piece)[1])
            for name, piece in pieces.items()
        }

    @property
    def infos(self) -> Mapping[str, TensorInfo]:
        return self._infos

    def read(self, name: str) -> NDArray[Any]:
        return self._in_order(name, _read(self._path, self._piece(name)))

    def packed(self, name: str) -> tuple[Packed, AffineForm] | None:
        piece = self._piece(name)
        kind, stored_name = piece.tensor.type, piece.tensor.name
        if kind not in FORMS or len(piece.shape) < 2:
            return None
        rows = self._in_order(name, _stored(self._path, piece).reshape(*piece.shape[:-1], -1))
        try:
            packed, form = affine_of(kind, rows)
        except ValueError as error:
            problem = f"blocks of {kind} that cannot stay packed"
            raise CheckpointError(
                self._path, problem, tensor=stored_name, found=error, remedy="Give --weights dense."
            ) from error
        _check_finite(self._path, stored_name, packed)
        return packed, form

    def _piece(self, name: str) -> GgufPiece:
        piece = self._pieces.get(name)
        if piece is None:
            raise CheckpointError(self._path, "tensor is missing", tensor=name)
        return piece

    def _in_order(self, name: str, rows: NDArray[Any]) -> NDArray[Any]:
        """The rows of a tensor, stored in the file's order, in Hugging Face's."""
        heads = self._heads.get(name.split(".")[-2])
        if heads is None:
            return rows
        if rows.shape[0] % (2 * heads):
            raise CheckpointError(
                self._path,
                "wrong shape",
                tensor=name,
                found=f"{rows.shape[0]} rows",
                expected=f"a multiple of {2 * heads} ({heads} heads)",
            )
        return half_split_rows(rows, heads)


def half_split_rows(values: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows in the order of rotate-half RoPE, from GGUF's order of interleaved pairs. [heads * H, ...] -> the same."""
    pairs = values.shape[0] // heads // 2
    return values.reshape(heads, pairs, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def _check_type(path: Path, tensor: GgufTensor) -> None:
    if tensor.type not in SUPPORTED_TYPES:
        raise CheckpointError(
            path,
            "quantization type is not supported",
            tensor=tensor.name,
            found=tensor.type,
            expected=", ".join(SUPPORTED_TYPES),
            remedy="Use a file of one of these types, such as Q8_0, Q4_1 or Q4_K_M.",
        )


def _span(piece: GgufPiece) -> tuple[int, int]:
    """Where the bytes of a piece begin, and how many there are."""
    tensor = piece.tensor
    if piece.place is None:
        return tensor.offset, tensor.stored_bytes
    size = tensor.stored_bytes // tensor.shape[0]
    return tensor.offset + piece.place * size, size


def _read(path: Path, piece: GgufPiece) -> NDArray[Any]:
    stored = _stored(path, piece)
    plain = _PLAIN.get(piece.tensor.type)
    if plain is not None:
        values: NDArray[Any] = stored.view(plain).reshape(piece.shape)
        return values
    return _dequantize(stored, piece.tensor.type, piece.shape)


def _stored(path: Path, piece: GgufPiece) -> NDArray[np.uint8]:
    """The bytes of a piece."""
    offset, size = _span(piece)
    try:
        return np.memmap(path, np.uint8, "r", offset, (size,)).view(np.ndarray)
    except (OSError, ValueError) as error:
        raise CheckpointError(path, "cannot be read", tensor=piece.tensor.name, found=error) from error


def _check_finite(path: Path, name: str, packed: Packed) -> None:
    for part in (packed.scales, packed.biases):
        finite = np.isfinite(part)
        if not finite.all():
            block = [int(place) for place in np.argwhere(~finite)[0]]
            raise CheckpointError(
                path,
                "not finite",
                tensor=name,
                found=f"{part[tuple(block)]} in block {block}",
                expected="numbers",
                remedy="Fetch the file again.",
            )


def _dequantize(stored: NDArray[np.uint8], name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    from gguf import GGMLQuantizationType, quants

    kind = GGMLQuantizationType[name]
    rows = stored.reshape(quants.quant_shape_to_byte_shape(shape, kind))
    return quants.dequantize(rows, kind)
