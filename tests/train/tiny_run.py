"""A tiny target, replies that can be learned, and settings of a run that takes seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.checkpoints.hf_files import write_directory
from tests.text import backends
from tfjax.checkpoints import open_checkpoint
from tfjax.engine.table import vocabulary_hash
from tfjax.models import llama
from tfjax.models.llama import LlamaConfig
from tfjax.text.loading import load_tokenizer
from tfjax.train.shards import Recipe, WrittenReply, open_directory, write_shard
from tfjax.train.small_settings import Settings, parser, read_settings

VOCAB = 260
TARGET: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
}
TINY_FLAGS = (
    *("--layers", "2", "--hidden", "16", "--inner", "24", "--heads", "2", "--kv-heads", "1", "--draft-vocab", "40"),
    *("--length", "32", "--batch", "4", "--epochs", "2", "--steps-per-call", "2", "--save-every", "4"),
    *("--learning-rate", "0.01"),
)


def write_target(directory: Path, **changed: Any) -> Path:
    """A random Llama with a byte-level tokenizer."""
    config = {**TARGET, **changed}
    random = np.random.default_rng(0)
    tensors = {
        part.name: random.normal(0, 0.2, part.shape).astype(np.float32) + (len(part.shape) == 1)
        for parts in llama.sources(LlamaConfig.from_hf(config)).values()
        for part in parts
    }
    write_directory(directory, config=config, tensors=tensors)
    backends.byte_level().save(str(directory / "tokenizer.json"))
    return directory


def counting(start: int, length: int) -> tuple[int, ...]:
    """Tokens that each follow from the one before."""
    return tuple((start + 3 * i) % 30 + 10 for i in range(length))


def replies(count: int = 100, length: int = 20) -> list[WrittenReply]:
    """Every third one was drawn at a temperature."""
    return [
        WrittenReply(i, "chat", float(i % 3 == 1), counting(7 * i, 4 + i % 5), counting(11 * i, length))
        for i in range(count)
    ]


def write_replies(directory: Path, target: Path, written: list[WrittenReply] | None = None, **changed: Any) -> Path:
    """A directory as `tfjax train replies` leaves it."""
    recipe: dict[str, Any] = {
        "model": target.name,
        "vocabulary": vocabulary_hash(load_tokenizer(open_checkpoint(target))),
        "dtype": "float32",
        "prompts": "counting",
        "corpus": "none",
        "versions": {},
        "seed": 1,
        "context": 64,
        "most_new": 32,
    }
    open_directory(directory, Recipe(**{**recipe, **changed}))
    found = replies() if written is None else written
    if found:
        write_shard(directory, found, VOCAB)
    return directory


def settings(base: Path, *flags: str) -> Settings:
    """Settings of a tiny run on `base`/target, and `base`/replies if no others are named; the last of a flag counts."""
    places = ["--model", str(base / "target"), "--output", str(base / "out")]
    if "--replies" not in flags:
        places += ["--replies", str(base / "replies")]
    return read_settings(parser().parse([*places, *TINY_FLAGS, *flags]))
