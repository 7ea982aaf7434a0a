"""Stored tensors of a directory, with MLX's packed weights as they are or read as the weights they stand for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints.affine import AFFINE, AffineForm, Packed, dequantize
from tfjax.checkpoints.checkpoint import TensorInfo
from tfjax.checkpoints.errors import CheckpointError
from tfjax.checkpoints.mlx_config import MlxQuantization
from tfjax.checkpoints.safetensors_files import At, SafetensorsFiles

WORDS = ("U32",)
_FLOATS = ("BF16", "F16", "F32")
_REMEDY = "Fetch the model again, or another revision of it."


class MlxTensors:
    """Tensors by the names in the file. Of a quantized module there is `weight` alone, in float32 when read."""

    def __init__(self, files: SafetensorsFiles, quantization: MlxQuantization | None) -> None:
        """Reads headers only.

        Raises:
            CheckpointError: a module whose tensors are not all there, or have other shapes than its form demands.
        """
        self._files = files
        self._forms = _Modules(files, quantization).forms()
        self._infos = {name: info for name, info in files.infos.items() if not _is_side(name)}
        for module, form in self._forms.items():
            self._infos[f"{module}.weight"] = self._packed_info(module, form)

    @property
    def directory(self) -> Path:
        return self._files.directory

    @property
    def infos(self) -> Mapping[str, TensorInfo]:
        return self._infos

    def read(self, name: str, at: At = ()) -> NDArray[Any]:
        """A tensor, or what `at` selects of its leading axes; a quantized one dequantized to float32.

        Raises:
            CheckpointError: as `TensorSource.read` says, or scales or biases that are not finite.
        """
        found = self.packed(name, at)
        return self._files.read(name, at) if found is None else dequantize(*found)

    def packed(self, name: str, at: At = ()) -> tuple[Packed, AffineForm] | None:
        """As they are stored: a quantized tensor, or what `at` selects of its leading axes; None for any other.

        Raises:
            CheckpointError: as `read` does.
        """
        module = name.removesuffix(".weight")
        form = self._forms.get(module)
        if form is None or module == name:
            return None
        scales, biases = (self._finite(f"{module}.{side}", at) for side in ("scales", "biases"))
        return Packed(self._files.read(name, at, WORDS), scales, biases), form

    def _finite(self, name: str, at: At) -> NDArray[Any]:
        values = self._files.read(name, at)
        finite = np.isfinite(values)
        if not finite.all():
            first = tuple(int(place) for place in np.argwhere(~finite)[0])
            found = f"{values[first]} at {list(first)}"
            file = self._files.infos[name].file
            raise CheckpointError(file, "not finite", tensor=name, found=found, expected="numbers", remedy=_REMEDY)
        return values

    def _packed_info(self, module: str, form: AffineForm) -> TensorInfo:
        parts = [self._files.infos[f"{module}.{part}"] for part in ("weight", "scales", "biases")]
        *leading, groups = parts[1].shape
        stored = sum(part.stored_bytes for part in parts)
        return TensorInfo((*leading, groups * form.group_size), f"{AFFINE}{form.bits}", parts[0].file, stored)


def _is_side(name: str) -> bool:
    return name.endswith((".scales", ".biases"))


class _Modules:
    """The quantized modules of a directory, checked against config.json."""

    def __init__(self, files: SafetensorsFiles, quantization: MlxQuantization | None) -> None:
        self._infos = files.infos
        self._config = files.directory / "config.json"
        self._quantization = quantization
        self._modules = [name.removesuffix(".weight") for name in self._infos if name.endswith(".weight")]

    def forms(self) -> dict[str, AffineForm]:
        """Module path in the file -> form."""
        self._check_sides()
        if self._quantization is None:
            return {}
        self._check_entries(self._quantization)
        forms = {}
        for module in self._modules:
            form = self._form(module, self._quantization)
            if form is not None:
                self._check_shapes(module, form)
                forms[module] = form
        return forms

    def _check_sides(self) -> None:
        for name, info in sorted(self._infos.items()):
            if not _is_side(name):
                continue
            module = name.rpartition(".")[0]
            if f"{module}.weight" not in self._infos:
                raise CheckpointError(info.file, f"{name} without a weight", expected=f"{module}.weight")
            if self._quantization is None:
                raise CheckpointError(
                    self._config,
                    "the weights are quantized, but config.json does not say how",
                    tensor=name,
                    expected='"quantization": {"bits": ..., "group_size": ...}',
                    remedy=_REMEDY,
                )

    def _check_entries(self, quantization: MlxQuantization) -> None:
        used = {quantization.entry(module) for module in self._modules}
        for entry in sorted(quantization.modules.keys() - used):
            raise CheckpointError(
                self._config,
                f"quantization of a module that does not exist: {entry}",
                expected=f"one of the {len(self._modules)} modules in the files",
                remedy=_REMEDY,
            )

    def _form(self, module: str, quantization: MlxQuantization) -> AffineForm | None:
        entry = quantization.entry(module)
        has_scales = f"{module}.scales" in self._infos
        if entry is None:
            return quantization.form if has_scales or self._is_packed(module) else None
        form = quantization.modules[entry]
        if form is None and has_scales:
            raise CheckpointError(
                self._infos[f"{module}.scales"].file,
                "scales of a module that config.json says is not quantized",
                tensor=f"{module}.scales",
                expected="no such tensor",
                remedy=_REMEDY,
            )
        return form

    def _is_packed(self, module: str) -> bool:
        return self._infos[f"{module}.weight"].dtype in WORDS

    def _check_shapes(self, module: str, form: AffineForm) -> None:
        weight = self._infos[f"{module}.weight"]
        if not self._is_packed(module) or not weight.shape or weight.shape[-1] * 32 % (form.bits * form.group_size):
            raise CheckpointError(
                weight.file,
                "no packed weight of the form that config.json states",
                tensor=f"{module}.weight",
                found=f"{weight.dtype} {weight.shape}",
                expected=f"U32 with whole groups of {form.group_size} columns of {form.bits} bits in a row",
                remedy=_REMEDY,
            )
        expected = (*weight.shape[:-1], weight.shape[-1] * 32 // form.bits // form.group_size)
        for side in ("scales", "biases"):
            self._check_side(module, side, expected, form)

    def _check_side(self, module: str, side: str, expected: tuple[int, ...], form: AffineForm) -> None:
        name, weight = f"{module}.{side}", self._infos[f"{module}.weight"]
        info = self._infos.get(name)
        if info is None:
            raise CheckpointError(
                weight.file, f"{side} are missing", tensor=name, expected=f"shape {expected}", remedy=_REMEDY
            )
        if info.dtype not in _FLOATS:
            raise CheckpointError(
                info.file, "type is not supported", tensor=name, found=info.dtype, expected=", ".join(_FLOATS)
            )
        if info.shape != expected:
            bits = 32 * weight.shape[-1] / max(1, math.prod(info.shape[-1:])) / form.group_size
            raise CheckpointError(
                info.file,
                "wrong shape for the form that config.json states",
                tensor=name,
                found=f"{info.shape}, which would be {bits:g} bits in groups of {form.group_size}",
                expected=f"{expected} for {form.bits} bits in groups of {form.group_size}",
                remedy=_REMEDY,
            )
