"""Tensors of a Hugging Face directory: one safetensors file, or shards with an index."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from tfjax.checkpoints.checkpoint import TensorInfo
from tfjax.checkpoints.errors import CheckpointError
from tfjax.checkpoints.json_files import read_object

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SUPPORTED_TYPES = ("F32", "F16", "BF16")
MAP_TYPES: Mapping[str, tuple[str, ...]] = {"d2t": ("I64", "I32"), "t2d": ("BOOL",)}
"""Tensors that say which tokens a reduced vocabulary has; they hold no weights."""
type At = tuple[int | slice, ...]

_ITEM_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


class SafetensorsFiles:
    """TensorSource over safetensors files, which the library maps into memory."""

    def __init__(self, directory: Path) -> None:
        """Reads headers only.

        Raises:
            CheckpointError: no safetensors, or a shard that is missing, damaged, unreadable or lacks an indexed tensor.
        """
        self._directory = directory
        self._files = {name: _open(directory / name) for name in _shard_names(directory)}
        self._infos: dict[str, TensorInfo] = {}
        for file_name, wanted in _placement(directory, self._files).items():
            for tensor in wanted:
                self._infos[tensor] = _info(self._files[file_name], tensor, directory / file_name)

    @property
    def infos(self) -> Mapping[str, TensorInfo]:
        return self._infos

    @property
    def directory(self) -> Path:
        return self._directory

    def read(self, name: str, at: At = (), types: Collection[str] | None = None) -> NDArray[Any]:
        """A tensor, or of its leading axes only what `at` selects; no more than that is read from the file.

        Args:
            name: as in the file.
            at: an index or a range of rows for each leading axis.
            types: stored types that are accepted; None for those of weights.

        Raises:
            CheckpointError: as `TensorSource.read` says.
        """
        info = self._infos.get(name)
        if info is None:
            raise CheckpointError(self._directory, "tensor is missing", tensor=name)
        supported = MAP_TYPES.get(name, SUPPORTED_TYPES) if types is None else types
        if info.dtype not in supported:
            raise CheckpointError(
                info.file, "type is not supported", tensor=name, found=info.dtype, expected=", ".join(supported)
            )
        opened = self._files[info.file.name]
        try:
            values: NDArray[Any] = opened.get_slice(name)[at] if at else opened.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(info.file, "cannot be read", tensor=name, found=error) from error
        return values


def _shard_names(directory: Path) -> list[str]:
    if (directory / SINGLE).exists():
        return [SINGLE]
    if (directory / INDEX).exists():
        return sorted(set(_weight_map(directory).values()))
    raise _nothing_to_read(directory)


def _nothing_to_read(directory: Path) -> CheckpointError:
    names = sorted(entry.name for entry in directory.iterdir())
    shards = [name for name in names if name.endswith(".safetensors")]
    if shards:
        found, remedy = ", ".join(shards[:4]), f"Shards need their {INDEX}; a single file is called {SINGLE}."
        return CheckpointError(directory, "safetensors of unknown role", found=found, expected=SINGLE, remedy=remedy)
    pickled = [name for name in names if name.endswith(_PICKLED)]
    if pickled:
        return CheckpointError(
            directory,
            "only pickled weights, which can run code when read and are refused",
            found=", ".join(pickled[:4]),
            expected=SINGLE,
            remedy="Convert them to safetensors, or fetch a revision of the model that has them.",
        )
    return CheckpointError(directory, "no weights", found=", ".join(names[:8]) or "nothing", expected=SINGLE)


def _weight_map(directory: Path) -> dict[str, str]:
    """Tensor name -> shard name, as the index says."""
    file = directory / INDEX
    weight_map = read_object(file).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(file, "no weight_map", found=type(weight_map).__name__, expected="an object")
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str) or shard != Path(shard).name or not shard.endswith(".safetensors"):
            expected = "the name of a .safetensors file in this directory"
            raise CheckpointError(file, "bad shard name", tensor=tensor, found=repr(shard), expected=expected)
    return weight_map


def _placement(directory: Path, files: Mapping[str, Any]) -> dict[str, list[str]]:
    """File name -> the tensors to take from it, each known to be there."""
    if SINGLE in files:
        return {SINGLE: list(files[SINGLE].keys())}
    held = {name: set(file.keys()) for name, file in files.items()}
    placement: dict[str, list[str]] = {name: [] for name in files}
    for tensor, shard in _weight_map(directory).items():
        if tensor not in held[shard]:
            raise CheckpointError(
                directory / shard, "tensor is in the index but not in its shard", tensor=tensor, expected=INDEX
            )
        placement[shard].append(tensor)
    return placement


def _open(file: Path) -> Any:
    if not file.exists():
        raise CheckpointError(
            file, "shard is missing", expected=f"the file that {INDEX} names", remedy="Fetch the model again."
        )
    try:
        return safe_open(file, framework="np")
    except SafetensorError as error:
        raise CheckpointError(
            file,
            "damaged or truncated safetensors file",
            found=f"{error} ({file.stat().st_size} bytes)",
            expected="a whole file",
            remedy="Fetch the file again.",
        ) from error
    except OSError as error:
        raise CheckpointError(file, "cannot be read", found=error.strerror or error) from error


def _info(opened: Any, tensor: str, file: Path) -> TensorInfo:
    header = opened.get_slice(tensor)
    shape = tuple(header.get_shape())
    dtype = header.get_dtype()
    elements = 1
    for size in shape:
        elements *= size
    return TensorInfo(shape, dtype, file, elements * _ITEM_BITS.get(dtype, 0) // 8)
