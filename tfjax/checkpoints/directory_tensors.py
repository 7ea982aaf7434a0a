"""Tensors of a directory under their published names, dequantized or packed, whatever layout the files have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints.affine import AffineForm, Packed
from tfjax.checkpoints.checkpoint import TensorInfo, TensorSource
from tfjax.checkpoints.errors import CheckpointError
from tfjax.checkpoints.mlx_config import read_quantization
from tfjax.checkpoints.mlx_tensors import MlxTensors
from tfjax.checkpoints.safetensors_files import SafetensorsFiles
from tfjax.checkpoints.stored_names import Piece, pieces


def open_tensors(directory: Path, config: Mapping[str, Any], architecture: str) -> TensorSource:
    """The tensors of a Hugging Face or MLX directory. Reads headers only.

    Args:
        directory: with model.safetensors, or shards and their index.
        config: its config.json; only what it says of quantization is used.
        architecture: Llama's and LFM2's names are brought to the published form; any other's stay as they are.

    Raises:
        CheckpointError: files that are missing or damaged, or a quantization that is not supported or does not fit.
    """
    quantization = read_quantization(directory / "config.json", config)
    return DirectoryTensors(MlxTensors(SafetensorsFiles(directory), quantization), architecture)


class DirectoryTensors:
    """TensorSource of pieces of stored tensors. Reading one reads no more of the file than the piece."""

    def __init__(self, stored: MlxTensors, architecture: str) -> None:
        self._stored = stored
        self._pieces: dict[str, Piece] = {}
        self._infos: dict[str, TensorInfo] = {}
        for name, piece in pieces(architecture, {name: info.shape for name, info in stored.infos.items()}):
            self._add(name, piece)

    @property
    def infos(self) -> Mapping[str, TensorInfo]:
        return self._infos

    def read(self, name: str) -> NDArray[Any]:
        piece = self._piece(name)
        values = self._stored.read(piece.stored, piece.at)
        return np.swapaxes(values, -1, -2) if piece.turned else values

    def packed(self, name: str) -> tuple[Packed, AffineForm] | None:
        piece = self._piece(name)
        return None if piece.turned else self._stored.packed(piece.stored, piece.at)

    def _piece(self, name: str) -> Piece:
        piece = self._pieces.get(name)
        if piece is None:
            raise CheckpointError(self._stored.directory, "tensor is missing", tensor=name)
        return piece

    def _add(self, name: str, piece: Piece) -> None:
        whole = self._stored.infos[piece.stored]
        if name in self._pieces:
            found = f"{self._pieces[name].stored} and {piece.stored}"
            raise CheckpointError(whole.file, "two tensors for one", tensor=name, found=found, expected="one of them")
        if piece.rows is not None and whole.shape[1] % 2:
            raise CheckpointError(
                whole.file, "wrong shape", tensor=piece.stored, found=whole.shape, expected="as many gate as up rows"
            )
        self._pieces[name] = piece
        share = _elements(piece.shape) / max(1, _elements(whole.shape))
        self._infos[name] = TensorInfo(piece.shape, whole.dtype, whole.file, round(whole.stored_bytes * share))


def _elements(shape: tuple[int, ...]) -> int:
    return math.prod(shape)
