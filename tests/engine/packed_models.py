"""Tiny quantized models on disk, and engines that serve them with their weights packed or dense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.checkpoints.hf_files import write_directory
from tests.engine.drafters.drafter_files import LLAMA_HF
from tests.models.test_lfm2_config import HF_DENSE, HF_MOE
from tfjax.checkpoints import Checkpoint, open_checkpoint
from tfjax.checkpoints.affine import AffineForm
from tfjax.checkpoints.mlx_rules import Forms
from tfjax.checkpoints.mlx_writer import quantize_directory
from tfjax.engine.weights import LoadedModel, load_model
from tfjax.models.registry import family_for

SIZES: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "max_position_embeddings": 256}
CONFIGS: dict[str, dict[str, Any]] = {
    "lfm2": HF_DENSE | SIZES,
    "lfm2_moe": HF_MOE | SIZES | {"architectures": ["Lfm2MoeForCausalLM"], "moe_intermediate_size": 64},
    "llama": LLAMA_HF | SIZES | {"vocab_size": 64, "head_dim": 16, "num_hidden_layers": 2},
    "llama_untied": LLAMA_HF | SIZES | {"vocab_size": 64, "head_dim": 16, "tie_word_embeddings": False},
}
FORMS = Forms(AffineForm(4, 32), router=AffineForm(8, 64), embedding=AffineForm(6, 64))


def silent(phase: str, share: float) -> None:
    del phase, share


def source_directory(directory: Path, name: str, dtype: Any = ml_dtypes.bfloat16, **changes: Any) -> Path:
    """Random weights of a config, large enough that every part changes the logits well above rounding."""
    config = CONFIGS[name] | changes
    family = family_for(config["architectures"][0])
    random, arrays = np.random.default_rng(2), {}
    for parts in family.sources(family.config_from_hf(config)).values():
        for part in parts:
            values = random.normal(0, 0.3, part.shape) + ("norm" in part.name)
            arrays[part.name] = values.astype(np.float32 if part.name.endswith("expert_bias") else dtype)
    return write_directory(directory, config=config, tensors=arrays)


def quantized(folder: Path, name: str, *, forms: Forms = FORMS, **changes: Any) -> Checkpoint:
    """A tiny model that `tfjax quantize` packed."""
    source = source_directory(folder / f"{name}-source", name, **changes)
    quantize_directory(source, folder / name, forms, silent)
    return open_checkpoint(folder / name)


def loaded(checkpoint: Checkpoint, weights: str, dtype: str = "bfloat16") -> LoadedModel:
    return load_model(checkpoint, dtype, silent, weights=weights)
