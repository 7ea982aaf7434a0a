"""Tiny GGUF files for tests, written by the gguf package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from numpy.typing import NDArray

HIDDEN, FF, LAYERS, HEADS, KV_HEADS, VOCAB = 256, 256, 1, 4, 2, 6
HEAD_DIM = HIDDEN // HEADS
TOKENS = ("<s>", "</s>", "a", "b", "ab", "c")
TYPES = (3, 3, 1, 1, 1, 1)

SHAPES = {
    "token_embd.weight": (VOCAB, HIDDEN),
    "output_norm.weight": (HIDDEN,),
    "blk.0.attn_norm.weight": (HIDDEN,),
    "blk.0.attn_q.weight": (HIDDEN, HIDDEN),
    "blk.0.attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
    "blk.0.attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
    "blk.0.attn_output.weight": (HIDDEN, HIDDEN),
    "blk.0.ffn_norm.weight": (HIDDEN,),
    "blk.0.ffn_gate.weight": (FF, HIDDEN),
    "blk.0.ffn_up.weight": (FF, HIDDEN),
    "blk.0.ffn_down.weight": (HIDDEN, FF),
}
METADATA: Mapping[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": LAYERS,
    "llama.context_length": 64,
    "llama.embedding_length": HIDDEN,
    "llama.feed_forward_length": FF,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 5000.0,
    "llama.rope.dimension_count": HEAD_DIM,
    "llama.vocab_size": VOCAB,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": list(TOKENS),
    "tokenizer.ggml.token_type": list(TYPES),
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 1,
}


def values(name: str, shape: tuple[int, ...] | None = None) -> NDArray[np.float32]:
    """The float32 values that `write_gguf` gives a tensor: random, fixed by its name."""
    seed = sum(name.encode())
    return np.random.default_rng(seed).standard_normal(SHAPES[name] if shape is None else shape).astype(np.float32)


def write_gguf(
    path: Path,
    *,
    metadata: Mapping[str, Any] | None = None,
    without: tuple[str, ...] = (),
    tensors: Mapping[str, NDArray[Any]] | None = None,
    quantized: Mapping[str, tuple[NDArray[np.uint8], GGMLQuantizationType]] | None = None,
) -> Path:
    """Writes a one-layer Llama model with random float32 weights.

    Args:
        metadata: added to METADATA or taking its place.
        without: metadata keys and tensors to leave out.
        tensors: added to the usual tensors or taking their place.
        quantized: tensors given as block bytes and their type.
    """
    merged = {**METADATA, **(metadata or {})}
    writer = GGUFWriter(path, str(merged.get("general.architecture")))
    for key, value in merged.items():
        if key not in without and key != "general.architecture":
            add_value(writer, key, value)
    quantized = quantized or {}
    arrays = {name: values(name) for name in SHAPES if name not in quantized} | dict(tensors or {})
    for name, array in arrays.items():
        if name not in without:
            writer.add_tensor(name, array)
    for name, (blocks, kind) in quantized.items():
        writer.add_tensor(name, blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_value(writer: GGUFWriter, key: str, value: Any) -> None:
    """Adds a metadata key in the type that converters give it."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
