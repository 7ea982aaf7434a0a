"""Tiny `lfm2` and `lfm2moe` GGUF files for tests, written by the gguf package as llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from numpy.typing import NDArray

from tests.checkpoints.gguf_files import TOKENS, TYPES, add_value

HIDDEN, HEADS, KV_HEADS, FF, INNER, EXPERTS, VOCAB, TAPS = 64, 4, 2, 96, 32, 3, len(TOKENS), 3
HEAD_DIM = HIDDEN // HEADS

type Arrays = dict[str, NDArray[np.float32]]


def metadata(architecture: str) -> dict[str, Any]:
    """Three layers: convolution, attention, convolution. Of the MoE, the first is dense."""
    own: dict[str, Any] = {
        "block_count": 3,
        "context_length": 128,
        "embedding_length": HIDDEN,
        "feed_forward_length": FF,
        "attention.head_count": HEADS,
        "attention.head_count_kv": [0, KV_HEADS, 0],
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 5000000.0,
        "shortconv.l_cache": TAPS,
        "vocab_size": VOCAB,
    }
    if architecture == "lfm2moe":
        own |= {
            "expert_count": EXPERTS,
            "expert_used_count": 2,
            "expert_feed_forward_length": INNER,
            "expert_gating_func": 2,
            "leading_dense_block_count": 1,
        }
    tokenizer = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "lfm2",
        "tokenizer.ggml.tokens": list(TOKENS),
        "tokenizer.ggml.token_type": list(TYPES),
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }
    return {f"{architecture}.{key}": value for key, value in own.items()} | tokenizer


def shapes(architecture: str) -> dict[str, tuple[int, ...]]:
    """GGUF names and shapes."""
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCAB, HIDDEN), "token_embd_norm.weight": (HIDDEN,)}
    for layer in range(3):
        at = f"blk.{layer}."
        own = {"attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,)} | (_attention() if layer == 1 else _convolution())
        own |= _experts() if architecture == "lfm2moe" and layer > 0 else _dense()
        found |= {f"{at}{name}.weight": shape for name, shape in own.items()}
        if architecture == "lfm2moe" and layer > 0:
            found[f"{at}exp_probs_b.bias"] = (EXPERTS,)
    return found


def _attention() -> dict[str, tuple[int, ...]]:
    square, kv = (HIDDEN, HIDDEN), (KV_HEADS * HEAD_DIM, HIDDEN)
    norm = {"attn_q_norm": (HEAD_DIM,), "attn_k_norm": (HEAD_DIM,)}
    return norm | {"attn_q": square, "attn_k": kv, "attn_v": kv, "attn_output": square}


def _convolution() -> dict[str, tuple[int, ...]]:
    inner = {"shortconv.in_proj": (3 * HIDDEN, HIDDEN), "shortconv.out_proj": (HIDDEN, HIDDEN)}
    return {"shortconv.conv": (HIDDEN, TAPS)} | inner


def _dense() -> dict[str, tuple[int, ...]]:
    return {"ffn_gate": (FF, HIDDEN), "ffn_up": (FF, HIDDEN), "ffn_down": (HIDDEN, FF)}


def _experts() -> dict[str, tuple[int, ...]]:
    rows = (EXPERTS, INNER, HIDDEN)
    stacks = {"ffn_gate_exps": rows, "ffn_up_exps": rows, "ffn_down_exps": (EXPERTS, HIDDEN, INNER)}
    return {"ffn_gate_inp": (EXPERTS, HIDDEN)} | stacks


def arrays(architecture: str) -> Arrays:
    """Random values, fixed by the names."""
    return {
        name: np.random.default_rng(sum(name.encode())).standard_normal(shape).astype(np.float32)
        for name, shape in shapes(architecture).items()
    }


def write(
    path: Path,
    architecture: str,
    *,
    keys: Mapping[str, Any] | None = None,
    tensors: Mapping[str, NDArray[np.float32] | None] | None = None,
    blocks: Mapping[str, tuple[NDArray[np.uint8], GGMLQuantizationType]] | None = None,
) -> Path:
    """Writes the model.

    Args:
        keys: metadata without the architecture's prefix, added or taking the usual ones' place; None takes one out.
        tensors: the same for tensors, by GGUF name.
        blocks: tensors given as block bytes and their type.
    """
    writer = GGUFWriter(path, architecture)
    own = {f"{architecture}.{key}": value for key, value in (keys or {}).items()}
    for key, value in (metadata(architecture) | own).items():
        if value is not None:
            add_value(writer, key, value)
    blocks = blocks or {}
    for name, array in {**arrays(architecture), **(tensors or {})}.items():
        if array is not None and name not in blocks:
            writer.add_tensor(name, array)
    for name, (stored, kind) in blocks.items():
        writer.add_tensor(name, stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
