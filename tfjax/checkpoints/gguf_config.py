"""GGUF metadata of architecture `llama`, in the form of a Hugging Face config.json.

Keys: the gguf package's constants and what llama.cpp's converter writes for `llama`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints.errors import CheckpointError
from tfjax.checkpoints.gguf_index import GgufFile, Value

ARCHITECTURE = "llama"

# Keys of `llama.` that are translated below, or that a converter writes and that change nothing.
_UNDERSTOOD = frozenset(
    {
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.layer_norm_rms_epsilon",
        "attention.value_length",
        "block_count",
        "context_length",
        "embedding_length",
        "expert_count",
        "expert_used_count",
        "feed_forward_length",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scale_linear",
        "rope.scaling.attn_factor",
        "rope.scaling.factor",
        "rope.scaling.finetuned",
        "rope.scaling.original_context_length",
        "rope.scaling.type",
        "tensor_data_layout",
        "vocab_size",
    }
)
_DEFAULT_ROPE_THETA = 10000.0
# Llama 3.1's published scaling; a GGUF file holds only the divisors that follow from it.
_LLAMA3_LOW, _LLAMA3_HIGH, _LLAMA3_CONTEXT = 1.0, 4.0, 8192


class _Metadata:
    """The metadata of one file; errors name the file and the key."""

    def __init__(self, path: Path, values: Mapping[str, Value]) -> None:
        self.path = path
        self._values = values

    def optional(self, key: str) -> Value | None:
        return self._values.get(f"{ARCHITECTURE}.{key}")

    def count(self, key: str, default: int | None = None) -> int:
        """A positive integer; a list of equal ones counts as one."""
        value = self.optional(key)
        if value is None:
            if default is None:
                raise self.error("metadata key is missing", key, None, "a positive integer")
            return default
        if isinstance(value, list) and len(set(value)) == 1:
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise self.error("metadata key has an unusable value", key, value, "a positive integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive finite number."""
        value = self.optional(key)
        if value is None:
            if default is None:
                raise self.error("metadata key is missing", key, None, "a positive number")
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise self.error("metadata key has an unusable value", key, value, "a positive number")
        return float(value)

    def error(self, problem: str, key: str, found: object, expected: str) -> CheckpointError:
        return CheckpointError(self.path, f"{problem}: {ARCHITECTURE}.{key}", found=found, expected=expected)


def check_architecture(file: GgufFile) -> None:
    """Raises CheckpointError unless the file is one whole model of architecture `llama`."""
    architecture = file.metadata.get("general.architecture")
    if architecture != ARCHITECTURE:
        raise CheckpointError(
            file.path,
            "GGUF of an architecture that is not supported (general.architecture)",
            found=repr(architecture),
            expected=repr(ARCHITECTURE),
            remedy="Use a Llama-architecture GGUF, or the model's safetensors directory.",
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


def hf_config(file: GgufFile, tensor_names: Collection[str], rope_divisors: NDArray[Any] | None) -> dict[str, Any]:
    """The config.json that this file's metadata stands for.

    Args:
        file: a `llama` GGUF.
        tensor_names: Hugging Face names of its tensors; they tell whether there are biases and a head of its own.
        rope_divisors: the tensor rope_freqs.weight, if the file has one: what each inverse frequency is divided by.

    Raises:
        CheckpointError: a key is missing, has an unusable value, or is unknown.
    """
    meta = _Metadata(file.path, file.metadata)
    _refuse_unknown(meta, file.metadata)
    hidden = meta.count("embedding_length")
    heads = meta.count("attention.head_count")
    head_dim = _head_dim(meta, hidden, heads)
    theta = meta.number("rope.freq_base", _DEFAULT_ROPE_THETA)
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": meta.count("vocab_size", file.index.vocabulary_size or None),
        "hidden_size": hidden,
        "intermediate_size": meta.count("feed_forward_length"),
        "num_hidden_layers": meta.count("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": meta.count("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "rms_norm_eps": meta.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": theta,
        "rope_scaling": _rope_scaling(meta, theta, head_dim, rope_divisors),
        "max_position_embeddings": meta.count("context_length"),
        "attention_bias": "model.layers.0.self_attn.q_proj.bias" in tensor_names,
        "mlp_bias": "model.layers.0.mlp.gate_proj.bias" in tensor_names,
        "tie_word_embeddings": "lm_head.weight" not in tensor_names,
    }
    return config | special_ids(file.metadata)


def special_ids(metadata: Mapping[str, Value]) -> dict[str, Any]:
    """bos_token_id, eos_token_id (a list when a reply may end in several ways) and pad_token_id, as far as given."""
    ids: dict[str, Any] = {}
    ends = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    distinct = list(dict.fromkeys(end for end in ends if isinstance(end, int)))
    if distinct:
        ids["eos_token_id"] = distinct[0] if len(distinct) == 1 else distinct
    for name, key in (("bos", "bos_token_id"), ("padding", "pad_token_id")):
        value = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if isinstance(value, int):
            ids[key] = value
    return ids


def _refuse_unknown(meta: _Metadata, metadata: Mapping[str, Value]) -> None:
    prefix = f"{ARCHITECTURE}."
    for key, value in metadata.items():
        if key.startswith(prefix) and key.removeprefix(prefix) not in _UNDERSTOOD:
            raise meta.error("unknown metadata key", key.removeprefix(prefix), value, "no such key")
    experts = meta.optional("expert_count")
    if experts:
        raise meta.error("mixture of experts is not supported", "expert_count", experts, "0")
    layout = meta.optional("tensor_data_layout")
    if layout not in (None, "reference", "Meta AI original pth"):
        raise meta.error("unknown tensor layout", "tensor_data_layout", layout, "'Meta AI original pth'")


def _head_dim(meta: _Metadata, hidden: int, heads: int) -> int:
    head_dim = meta.count("attention.key_length", hidden // heads or None)
    for key in ("attention.value_length", "rope.dimension_count"):
        found = meta.count(key, head_dim)
        if found != head_dim:
            raise meta.error("differs from the head size", key, found, str(head_dim))
    return head_dim


def _rope_scaling(meta: _Metadata, theta: float, head_dim: int, divisors: NDArray[Any] | None) -> dict[str, Any] | None:
    kind = meta.optional("rope.scaling.type") or "none"
    factor = meta.number("rope.scaling.factor", meta.number("rope.scale_linear", 1.0))
    if meta.number("rope.scaling.attn_factor", 1.0) != 1.0:
        found = meta.optional("rope.scaling.attn_factor")
        raise meta.error("attention scaling is not supported", "rope.scaling.attn_factor", found, "1.0")
    if divisors is not None and not np.all(divisors == 1.0):
        return _llama3_scaling(meta, theta, head_dim, divisors)
    if kind == "linear" or (kind == "none" and meta.optional("rope.scale_linear") is not None and factor != 1.0):
        return {"rope_type": "linear", "factor": factor}
    if kind == "none":
        return None
    return {
        "rope_type": str(kind),
        "factor": factor,
        "original_max_position_embeddings": meta.count("rope.scaling.original_context_length", 1),
    }


def _llama3_scaling(meta: _Metadata, theta: float, head_dim: int, divisors: NDArray[Any]) -> dict[str, Any]:
    """Recovers Llama 3's rule from its divisors, and refuses divisors that follow from another rule."""
    scaling = {
        "rope_type": "llama3",
        "factor": float(divisors.max()),
        "low_freq_factor": _LLAMA3_LOW,
        "high_freq_factor": _LLAMA3_HIGH,
        "original_max_position_embeddings": meta.count("rope.scaling.original_context_length", _LLAMA3_CONTEXT),
    }
    expected = llama3_divisors(theta, head_dim, scaling)
    if divisors.shape != expected.shape or not np.allclose(divisors, expected, rtol=1e-4):
        raise CheckpointError(
            meta.path,
            "RoPE divisors that do not follow Llama 3's rule",
            tensor="rope_freqs.weight",
            found=np.array2string(divisors.ravel(), precision=4, threshold=8),
            expected=np.array2string(expected, precision=4, threshold=8),
            remedy="Use the model's safetensors directory.",
        )
    return scaling


def llama3_divisors(theta: float, head_dim: int, scaling: Mapping[str, Any]) -> NDArray[np.float64]:
    """What Llama 3's scaling divides each inverse frequency by, [head_dim / 2].

    Source: Llama 3.1's published rope_scaling. Wavelengths above original / low are divided by `factor`, those below
    original / high by 1, those between by a blend.
    """
    frequencies = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    wavelengths = 2.0 * np.pi / frequencies
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    original, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    blend = np.clip((original / wavelengths - low) / (high - low), 0.0, 1.0)
    return np.asarray(1.0 / ((1.0 - blend) / factor + blend))
