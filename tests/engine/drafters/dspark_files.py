"""Checkpoints of tiny DSpark drafters on disk, for the target of `drafter_files`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tests.checkpoints.hf_files import write_directory
from tests.engine.drafters.drafter_files import random_arrays, target
from tfjax.models.dspark_config import DSparkConfig
from tfjax.models.dspark_tensors import sources
from tfjax.models.llama import LlamaConfig

TARGET_CONFIG = LlamaConfig.from_hf(
    {
        "vocab_size": 264,
        "hidden_size": 40,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
    }
)
TARGET = target(TARGET_CONFIG)

LIQUID: dict[str, Any] = {
    "architectures": ["Lfm2DSparkDraftModel"],
    "model_type": "qwen3",
    "vocab_size": 264,
    "hidden_size": 40,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e4,
    "max_position_embeddings": 256,
    "block_size": 5,
    "markov_rank": 16,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "rope_is_neox_style": False,
    "dflash_config": {"mask_token_id": 200, "target_layer_ids": [0, 2], "num_target_layers": 4},
}


def dspark_arrays(config: dict[str, Any] = LIQUID) -> dict[str, NDArray[Any]]:
    """Random tensors by their published names."""
    return random_arrays(sources(DSparkConfig.from_hf(config)))


def dspark_directory(directory: Path, *, config: dict[str, Any] = LIQUID, **changes: NDArray[Any] | None) -> Path:
    """`changes` replace, add or (None) remove tensors."""
    tensors = {name: array for name, array in (dspark_arrays(config) | changes).items() if array is not None}
    return write_directory(directory, config=config, tensors=tensors)
