"""GGUF metadata of architecture `llama`, in the form of a Hugging Face config.json.

Keys: the gguf package's constants and what llama.cpp's converter writes for `llama`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from numpy.typing import NDArray

from tfjax.checkpoints.gguf_index import GgufFile
from tfjax.checkpoints.gguf_metadata import Metadata, head_size, special_ids
from tfjax.checkpoints.gguf_rope import ROPE_KEYS, rope_scaling

# Keys that are translated below, or that a converter writes and that change nothing.
_UNDERSTOOD = ROPE_KEYS | frozenset(
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
        "tensor_data_layout",
        "vocab_size",
    }
)
_DEFAULT_ROPE_THETA = 10000.0


def llama_config(file: GgufFile, tensors: Collection[str], rope_divisors: NDArray[Any] | None) -> dict[str, Any]:
    """The config.json that the metadata of a `llama` file stands for.

    Args:
        file: a `llama` GGUF.
        tensors: Hugging Face names of its tensors; they tell whether there are biases and a head of its own.
        rope_divisors: the tensor rope_freqs.weight, if the file has one: what each inverse frequency is divided by.

    Raises:
        CheckpointError: a key is missing, has an unusable value, or is unknown.
    """
    meta = Metadata(file)
    _refuse_unsupported(meta)
    hidden = meta.count("embedding_length")
    heads = meta.count("attention.head_count")
    head_dim = head_size(meta, hidden, heads)
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
        "rope_scaling": rope_scaling(meta, theta, head_dim, rope_divisors),
        "max_position_embeddings": meta.count("context_length"),
        "attention_bias": "model.layers.0.self_attn.q_proj.bias" in tensors,
        "mlp_bias": "model.layers.0.mlp.gate_proj.bias" in tensors,
        "tie_word_embeddings": "lm_head.weight" not in tensors,
    }
    return config | special_ids(file.metadata)


def _refuse_unsupported(meta: Metadata) -> None:
    meta.refuse_unknown(_UNDERSTOOD)
    experts = meta.optional("expert_count")
    if experts:
        raise meta.error("mixture of experts is not supported", "expert_count", experts, "0")
    layout = meta.optional("tensor_data_layout")
    if layout not in (None, "reference", "Meta AI original pth"):
        raise meta.error("unknown tensor layout", "tensor_data_layout", layout, "'Meta AI original pth'")
