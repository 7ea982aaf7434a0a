"""Tiny Hugging Face directories for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

CONFIG: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "vocab_size": 6,
}


def weights() -> dict[str, NDArray[Any]]:
    """A few tensors, told apart by their values."""
    return {
        "model.embed_tokens.weight": np.arange(24, dtype=np.float32).reshape(6, 4),
        "model.norm.weight": np.arange(4, dtype=np.float32) + 100,
    }


def write_directory(
    directory: Path,
    *,
    config: Mapping[str, Any] | None = None,
    tensors: Mapping[str, NDArray[Any]] | None = None,
    shards: Mapping[str, tuple[str, ...]] | None = None,
) -> Path:
    """Writes config.json and the weights, in one file or, as `shards` says (file name -> tensors), in several."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIG if config is None else config))
    arrays = weights() if tensors is None else dict(tensors)
    if shards is None:
        save_file(arrays, directory / "model.safetensors")
        return directory
    for shard, names in shards.items():
        save_file({name: arrays[name] for name in names}, directory / shard)
    weight_map = {name: shard for shard, names in shards.items() for name in names}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return directory
