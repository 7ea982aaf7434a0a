"""Checkpoints of tiny drafters on disk, and the target that they draft for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from tests.checkpoints.hf_files import write_directory
from tests.models.test_small_drafter import HF as SMALL_HF
from tests.models.tiny import TINY, random_llama
from tests.text import backends
from tfjax.engine.weights import LoadedModel
from tfjax.models import llama, small_drafter
from tfjax.models.llama import LlamaConfig
from tfjax.text.tokenizer import SpecialTokens, Tokenizer

TARGET_CONFIG = LlamaConfig.from_hf(
    {
        "vocab_size": 264,
        "hidden_size": 40,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
    }
)
"""Four rows of padding behind the 260 tokens of `backends.byte_level`."""

TOKENIZER = Tokenizer(backends.byte_level(), SpecialTokens())

LLAMA_HF: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 272,
    "hidden_size": TINY.hidden,
    "intermediate_size": TINY.inner,
    "num_hidden_layers": 1,
    "num_attention_heads": TINY.heads,
    "num_key_value_heads": TINY.kv_heads,
    "head_dim": TINY.head_dim,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}
SMALL: dict[str, Any] = SMALL_HF | {"vocab_size": 264}
IDS = np.arange(24) * 11


def target(config: LlamaConfig = TARGET_CONFIG) -> LoadedModel:
    return LoadedModel(llama.FAMILY, config, random_llama(config, np.float32), np.float32)


def random_arrays(sources: Any) -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(1)
    return {
        part.name: random.normal(0, 0.3, part.shape).astype(np.float32) for parts in sources.values() for part in parts
    }


def small_arrays(config: dict[str, Any] | None = None) -> dict[str, NDArray[Any]]:
    known = {key: value for key, value in (config or SMALL).items() if key in SMALL}
    parsed = small_drafter.SmallDrafterConfig.from_hf(known)
    return random_arrays(small_drafter.sources(parsed)) | {"d2t": IDS - np.arange(len(IDS))}


def small_directory(directory: Path, *, config: dict[str, Any] | None = None, **arrays: NDArray[Any]) -> Path:
    return write_directory(directory, config=config or SMALL, tensors=small_arrays(config) | arrays)


def llama_directory(
    directory: Path, *, config: dict[str, Any] | None = None, tokens: tokenizers.Tokenizer | None = None
) -> Path:
    config = config or LLAMA_HF
    write_directory(directory, config=config, tensors=random_arrays(llama.sources(LlamaConfig.from_hf(config))))
    (tokens or backends.byte_level()).save(str(directory / "tokenizer.json"))
    return directory
