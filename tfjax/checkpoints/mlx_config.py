"""The `quantization` object of an MLX model's config.json: which modules are quantized, and how.

Source: what mlx-lm writes and how it loads. Module paths are keys beside the usual form; each holds a form of its own,
or false for a module that is not quantized. A module without a key is quantized where it has scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfjax.checkpoints.affine import AffineForm
from tfjax.checkpoints.errors import CheckpointError
from tfjax.checkpoints.stored_names import canonical_module, module_names

KEYS = ("quantization", "quantization_config")
"""Where the object stands; MLX writes it twice. The first that is there counts."""

MODE = "affine"
_FORM_KEYS = frozenset({"bits", "group_size", "mode"})
# What MLX takes for a module whose own object leaves it out.
_MODULE_DEFAULTS: Mapping[str, Any] = {"bits": 4, "group_size": 64}


@dataclass(frozen=True, slots=True)
class MlxQuantization:
    """How modules are quantized.

    Attributes:
        form: of a module that has scales and no entry of its own.
        modules: entries by canonical module path; None for a module that is not quantized.
    """

    form: AffineForm
    modules: Mapping[str, AffineForm | None]

    def entry(self, module: str) -> str | None:
        """The key of `modules` that stands for a module of the file, if any."""
        return next((name for name in module_names(module) if name in self.modules), None)


def without_quantization(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of the same model with its weights dequantized."""
    return {key: value for key, value in config.items() if key not in KEYS}


def read_quantization(file: Path, config: Mapping[str, Any]) -> MlxQuantization | None:
    """The quantization that config.json states; None when there is none.

    Raises:
        CheckpointError: a quantization that is not MLX's affine one, or a form that it does not have.
    """
    found = next(((key, config[key]) for key in KEYS if config.get(key)), None)
    if found is None:
        return None
    key, stated = found
    if not isinstance(stated, dict) or "quant_method" in stated:
        raise CheckpointError(
            file,
            f"weights quantized by a method that is not supported ({key})",
            found=stated,
            expected="MLX's affine quantization: bits and group_size",
            remedy="Use the unquantized model, an MLX model or a GGUF file.",
        )
    for missing in sorted({"bits", "group_size"} - stated.keys()):
        raise CheckpointError(file, f"{key}.{missing} is missing", found=stated, expected="bits and group_size")
    own = {name: value for name, value in stated.items() if name not in _FORM_KEYS}
    usual = _form(file, key, {name: value for name, value in stated.items() if name in _FORM_KEYS})
    return MlxQuantization(
        usual, {canonical_module(name): _entry(file, f"{key}.{name}", value, usual) for name, value in own.items()}
    )


def _entry(file: Path, where: str, value: object, usual: AffineForm) -> AffineForm | None:
    if isinstance(value, bool):
        return usual if value else None
    if isinstance(value, dict):
        return _form(file, where, {**_MODULE_DEFAULTS, **value})
    raise CheckpointError(file, f"unknown key: {where}", found=value, expected="a module's form, true or false")


def _form(file: Path, where: str, stated: Mapping[str, Any]) -> AffineForm:
    for unknown in sorted(stated.keys() - _FORM_KEYS):
        raise CheckpointError(file, f"unknown key: {where}.{unknown}", found=stated[unknown], expected="no such key")
    mode = stated.get("mode", MODE)
    if mode != MODE:
        raise CheckpointError(
            file,
            f"quantization mode is not supported ({where}.mode)",
            found=repr(mode),
            expected=f"{MODE!r}, which has a scale and a bias for each group; the others store numbers of another kind",
            remedy="Use a model in affine form, or the unquantized one with `tfjax quantize`.",
        )
    bits, group_size = stated["bits"], stated["group_size"]
    if type(bits) is not int or type(group_size) is not int:
        found = f"bits {bits!r}, group_size {group_size!r}"
        raise CheckpointError(file, f"unusable quantization ({where})", found=found, expected="integers")
    try:
        return AffineForm(bits, group_size)
    except ValueError as error:
        raise CheckpointError(file, f"unusable quantization ({where})", found=error) from error
