"""Opens a model, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfjax.checkpoints import gguf_config, gguf_tensors
from tfjax.checkpoints.checkpoint import Checkpoint, GgufTokenizer, HfTokenizerFiles
from tfjax.checkpoints.directory_tensors import open_tensors
from tfjax.checkpoints.errors import CheckpointError
from tfjax.checkpoints.gguf_index import MAGIC, open_gguf
from tfjax.checkpoints.gguf_metadata import special_ids
from tfjax.checkpoints.json_files import read_object, read_optional_object
from tfjax.checkpoints.mlx_config import without_quantization

_EXPECTED = "a directory with config.json and model.safetensors, or a .gguf file"
_REQUIRED = ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size")
# Where drafters of vLLM's "speculators" keep the keys of their layers.
_NESTED = "transformer_layer_config"


def open_checkpoint(path: Path) -> Checkpoint:
    """Opens a Hugging Face or MLX safetensors directory or a GGUF file. Reads metadata only.

    Raises:
        CheckpointError: the model is absent, incomplete, damaged, unsupported or unreadable; the message says which
            file and what to do.
    """
    file = model_file(path)
    return _open_directory(path) if file is None else _open_gguf(file)


def model_file(path: Path) -> Path | None:
    """The GGUF file that `path` is or alone holds; None for a Hugging Face directory.

    Raises:
        CheckpointError: neither.
    """
    try:
        if path.is_dir():
            return _gguf_inside(path)
        if not path.exists():
            raise CheckpointError(path, "no such model", expected=_EXPECTED)
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise CheckpointError(path, "cannot be read", found=error.strerror or error) from error
    if magic == MAGIC:
        return path
    remedy = "Give the directory that holds the file." if path.suffix == ".safetensors" else None
    raise CheckpointError(path, "not a model", found=f"a file starting {magic!r}", expected=_EXPECTED, remedy=remedy)


def _gguf_inside(directory: Path) -> Path | None:
    names = sorted(entry.name for entry in directory.iterdir())
    if "config.json" in names:
        return None
    candidates = [name for name in names if name.endswith(".gguf")]
    if len(candidates) == 1:
        return directory / candidates[0]
    if candidates:
        found = ", ".join(candidates[:4])
        raise CheckpointError(directory, "several GGUF files", found=found, expected="one", remedy="Name the file.")
    if not names:
        raise CheckpointError(directory, "empty directory", expected=_EXPECTED)
    if "model.safetensors" in names or "model.safetensors.index.json" in names:
        raise CheckpointError(directory, "config.json is missing", found=", ".join(names[:8]), expected=_EXPECTED)
    raise CheckpointError(directory, "not a model", found=", ".join(names[:8]), expected=_EXPECTED)


def _open_directory(directory: Path) -> Checkpoint:
    config = read_object(directory / "config.json")
    _check_config(directory / "config.json", config)
    return Checkpoint(
        path=directory,
        format="safetensors",
        architecture=config["architectures"][0],
        config=without_quantization(config),
        generation_config=read_optional_object(directory / "generation_config.json"),
        tensors=open_tensors(directory, config, config["architectures"][0]),
        tokenizer=HfTokenizerFiles(directory),
    )


def _check_config(file: Path, config: Mapping[str, Any]) -> None:
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise CheckpointError(file, "required key: architectures", found=names, expected="a list with a class name")
    nested = config.get(_NESTED)
    sizes = nested if isinstance(nested, Mapping) else config
    for key in _REQUIRED:
        value = sizes.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise CheckpointError(file, f"required key: {key}", found=value, expected="a positive integer")


def _open_gguf(path: Path) -> Checkpoint:
    file = open_gguf(path)
    gguf_config.check_architecture(file)
    pieces = gguf_tensors.table(file)
    shapes = {name: piece.shape for name, piece in pieces.items()}
    config = gguf_config.hf_config(file, shapes, gguf_tensors.rope_divisors(file))
    return Checkpoint(
        path=path,
        format="gguf",
        architecture=config["architectures"][0],
        config=config,
        generation_config=special_ids(file.metadata),
        tensors=gguf_tensors.GgufTensors(file, pieces, config),
        tokenizer=GgufTokenizer(file),
    )
