"""GGUF metadata in the form of a Hugging Face config.json, by architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from tfjax.checkpoints.errors import CheckpointError
from tfjax.checkpoints.gguf_index import GgufFile
from tfjax.checkpoints.gguf_lfm2 import lfm2_config
from tfjax.checkpoints.gguf_llama import llama_config

ARCHITECTURES = ("llama", "lfm2", "lfm2moe")


def hf_config(
    file: GgufFile, shapes: Mapping[str, tuple[int, ...]], rope_divisors: NDArray[Any] | None
) -> dict[str, Any]:
    """The config.json that this file's metadata stands for.

    Args:
        file: of one of ARCHITECTURES.
        shapes: of its tensors, by Hugging Face name; they go before what the metadata says of sizes.
        rope_divisors: the tensor rope_freqs.weight, if the file has one: what each inverse frequency is divided by.

    Raises:
        CheckpointError: a key is missing, has an unusable value, or is unknown.
    """
    if file.metadata.get("general.architecture") == "llama":
        return llama_config(file, shapes, rope_divisors)
    return lfm2_config(file, shapes, rope_divisors)


def check_architecture(file: GgufFile) -> None:
    """Raises CheckpointError unless the file is one whole model of a supported architecture."""
    architecture = file.metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise CheckpointError(
            file.path,
            "GGUF of an architecture that is not supported (general.architecture)",
            found=repr(architecture),
            expected=" or ".join(map(repr, ARCHITECTURES)),
            remedy="Use a GGUF of one of these architectures, or the model's safetensors directory.",
        )
    kind = file.metadata.get("general.type", "model")
    if kind != "model":
        raise CheckpointError(file.path, "not a whole model (general.type)", found=repr(kind), expected="'model'")
    split = file.metadata.get("split.count", 0)
    if isinstance(split, int) and split > 1:
        raise CheckpointError(
            file.path,
            "one part of a split GGUF",
            found=f"split.count {split}",
            expected="a single file",
            remedy="Join the parts with `llama-gguf-split --merge`.",
        )
