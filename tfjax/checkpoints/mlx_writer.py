"""Writes a model as an MLX directory with packed weights, one tensor in memory at a time."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints.affine import AffineForm, quantize
from tfjax.checkpoints.checkpoint import TensorInfo, TensorSource
from tfjax.checkpoints.directory_tensors import open_tensors
from tfjax.checkpoints.errors import CheckpointError
from tfjax.checkpoints.json_files import read_object
from tfjax.checkpoints.mlx_config import KEYS, MODE
from tfjax.checkpoints.mlx_rules import Forms, Place, mlx_place
from tfjax.checkpoints.safetensors_files import INDEX, SINGLE, SUPPORTED_TYPES
from tfjax.checkpoints.safetensors_writer import DTYPES, Layout, SafetensorsWriter
from tfjax.checkpoints.unfinished import new_directory

type Progress = Callable[[str, float], None]

# Not copied beside the new weights: other weights, and code, which nothing here runs.
_LEFT = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack", ".onnx", ".py")


@dataclass(frozen=True, slots=True)
class Written:
    """What came out.

    Attributes:
        weights: numbers in all tensors.
        packed: of them, those that were quantized.
        bytes_before: of all tensors as they were stored.
        bytes_after: of all tensors now.
        kept: modules that would have been quantized, had groups filled their rows; with the length of these.
    """

    weights: int
    packed: int
    bytes_before: int
    bytes_after: int
    kept: Mapping[str, int]

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.bytes_after / max(1, self.weights)


def quantize_directory(source: Path, target: Path, forms: Forms, progress: Progress) -> Written:
    """Packs the weights of a safetensors directory; `target` is there whole or not at all.

    Args:
        source: a model or drafter with config.json and unquantized safetensors.
        target: a directory that does not exist yet.
        forms: how to pack what.
        progress: told what is being done, and the share of it that is done (0..1).

    Raises:
        CheckpointError: a source that cannot be read or is quantized already, a target that exists or is
            being written, or nothing to pack.
    """
    config = read_object(_config_file(source))
    plan = _Plan(source, config, forms)
    with new_directory(target) as unfinished:
        plan.write(unfinished / SINGLE, progress)
        config |= dict.fromkeys(KEYS, plan.quantization())
        (unfinished / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        _copy_others(source, unfinished)
    return plan.written()


def _config_file(source: Path) -> Path:
    if not source.is_dir() or not (source / "config.json").exists():
        raise CheckpointError(
            source,
            "nothing to quantize",
            expected="a directory with config.json and safetensors",
            remedy="A GGUF file is quantized already; use the model that it was made from.",
        )
    return source / "config.json"


def _copy_others(source: Path, target: Path) -> None:
    for entry in sorted(source.iterdir()):
        left = entry.suffix in _LEFT or entry.name in ("config.json", INDEX) or entry.name.startswith(".")
        if entry.is_file() and not left:
            shutil.copyfile(entry, target / entry.name)


class _Plan:
    """Every tensor, where it goes and in which form; decided before anything is read."""

    def __init__(self, source: Path, config: Mapping[str, Any], forms: Forms) -> None:
        stated = next((key for key in KEYS if config.get(key)), None)
        if stated is not None:
            raise CheckpointError(
                source / "config.json",
                f"quantized already ({stated})",
                found=config[stated],
                expected="bf16, f16 or f32 weights",
                remedy="Rounding twice loses more than rounding once; use the model that this one was made from.",
            )
        architecture = next(iter(config.get("architectures") or [""]))
        self._usual = forms.matrix
        self._tensors: TensorSource = open_tensors(source, config, architecture)
        self._places: dict[str, Place] = {name: mlx_place(architecture, name) for name in self._tensors.infos}
        self._forms: dict[str, AffineForm] = {}
        self._kept: dict[str, int] = {}
        for name, info in self._tensors.infos.items():
            self._decide(name, info, forms.of(name, info.shape))
        if not self._forms:
            expected = f"a weight whose rows are filled by groups of {forms.matrix.group_size}"
            raise CheckpointError(source, "nothing to quantize", expected=expected, remedy="Take a smaller group size.")
        self._layouts = self._layout()

    def _decide(self, name: str, info: TensorInfo, form: AffineForm | None) -> None:
        if info.dtype not in DTYPES:
            expected = ", ".join(SUPPORTED_TYPES)
            raise CheckpointError(info.file, "type is not supported", tensor=name, found=info.dtype, expected=expected)
        if form is None:
            return
        if info.shape[-1] % form.group_size:
            self._kept[self._module(name)] = info.shape[-1]
        else:
            self._forms[name] = form

    def _module(self, name: str) -> str:
        return self._places[name].name.removesuffix(".weight")

    def _layout(self) -> dict[str, Layout]:
        stacks: dict[str, int] = {}
        for place in self._places.values():
            if place.entry is not None:
                stacks[place.name] = max(stacks.get(place.name, 0), place.entry + 1)
        found: dict[str, Layout] = {}
        for name, info in self._tensors.infos.items():
            place = self._places[name]
            leading = () if place.entry is None else (stacks[place.name],)
            for part, layout in self._parts(name, info).items():
                stacked = Layout(layout.dtype, (*leading, *layout.shape))
                if found.setdefault(part, stacked) != stacked:
                    raise CheckpointError(
                        info.file, "experts differ", tensor=name, found=info.dtype, expected=found[part].dtype
                    )
        return found

    def _parts(self, name: str, info: TensorInfo) -> dict[str, Layout]:
        """What a tensor becomes, by name in the file, without the axis of a stack."""
        place, form = self._places[name], self._forms.get(name)
        if form is None:
            shape = (*info.shape[:-2], info.shape[-1], info.shape[-2]) if place.turned else info.shape
            return {place.name: Layout(info.dtype, shape)}
        rows, columns = info.shape
        module, side = self._module(name), Layout(info.dtype, (rows, columns // form.group_size))
        words = Layout("U32", (rows, form.words(columns)))
        return {place.name: words, f"{module}.scales": side, f"{module}.biases": side}

    def write(self, file: Path, progress: Progress) -> None:
        """Reads, packs and writes the tensors one by one."""
        total = sum(math.prod(info.shape) for info in self._tensors.infos.values())
        done = 0
        with SafetensorsWriter(file, self._layouts, {"format": "mlx"}) as writer:
            for name, info in self._tensors.infos.items():
                for part, values in self._packed(name, info).items():
                    writer.write(part, values, self._places[name].entry)
                done += math.prod(info.shape)
                progress("quantizing", done / max(1, total))

    def _packed(self, name: str, info: TensorInfo) -> dict[str, NDArray[Any]]:
        place, form, values = self._places[name], self._forms.get(name), self._tensors.read(name)
        if form is None:
            return {place.name: np.swapaxes(values, -1, -2) if place.turned else values}
        try:
            packed = quantize(values, form)
        except ValueError as error:
            raise CheckpointError(info.file, "cannot be quantized", tensor=name, found=error) from error
        module = self._module(name)
        return {place.name: packed.words, f"{module}.scales": packed.scales, f"{module}.biases": packed.biases}

    def quantization(self) -> dict[str, Any]:
        """The object for config.json: the usual form, and every module that differs from it."""
        stated: dict[str, Any] = {"group_size": self._usual.group_size, "bits": self._usual.bits, "mode": MODE}
        for name, form in self._forms.items():
            if form != self._usual:
                stated[self._module(name)] = {"group_size": form.group_size, "bits": form.bits}
        return stated | dict.fromkeys(self._kept, False)

    def written(self) -> Written:
        """The sums."""
        infos = self._tensors.infos
        return Written(
            weights=sum(math.prod(info.shape) for info in infos.values()),
            packed=sum(math.prod(infos[name].shape) for name in self._forms),
            bytes_before=sum(info.stored_bytes for info in infos.values()),
            bytes_after=sum(layout.stored_bytes for layout in self._layouts.values()),
            kept=self._kept,
        )
