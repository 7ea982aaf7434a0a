"""GGUF metadata of architectures `lfm2` and `lfm2moe`, in the form of a Hugging Face config.json.

Keys: what llama.cpp's converter writes for both. Sizes of feed-forwards are those of the tensors: files exist that
state the number before LFM2's own rounding rule.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from tfjax.checkpoints.gguf_index import GgufFile, Value
from tfjax.checkpoints.gguf_metadata import Metadata, head_size, special_ids
from tfjax.checkpoints.gguf_rope import ROPE_KEYS, rope_scaling

_SHARED = ROPE_KEYS | frozenset(
    {
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.layer_norm_rms_epsilon",
        "attention.value_length",
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "shortconv.l_cache",
        "vocab_size",
    }
)
_EXPERTS = frozenset(
    {
        "expert_count",
        "expert_feed_forward_length",
        "expert_gating_func",
        "expert_used_count",
        "expert_weights_norm",
        "expert_weights_scale",
        "leading_dense_block_count",
    }
)
_SIGMOID = 2
_LAYER = re.compile(r"model\.layers\.(\d+)\.conv\.conv\.weight")

type Shapes = Mapping[str, tuple[int, ...]]


def lfm2_config(file: GgufFile, shapes: Shapes, rope_divisors: NDArray[Any] | None) -> dict[str, Any]:
    """The config.json that the metadata of an `lfm2` or `lfm2moe` file stands for.

    Args:
        file: the file.
        shapes: of its tensors, by Hugging Face name.
        rope_divisors: the tensor rope_freqs.weight, if the file has one.

    Raises:
        CheckpointError: a key is missing, has an unusable value, is unknown or contradicts the tensors.
    """
    meta = Metadata(file)
    experts = file.metadata.get("general.architecture") == "lfm2moe"
    meta.refuse_unknown(_SHARED | _EXPERTS if experts else _SHARED)
    hidden, heads = meta.count("embedding_length"), meta.count("attention.head_count")
    layers, kv_heads = _layers(meta, heads, shapes)
    head_dim, theta = head_size(meta, hidden, heads), meta.number("rope.freq_base")
    if head_dim * heads != hidden:
        raise meta.error(
            "differs from embedding_length / head_count", "attention.key_length", head_dim, f"{hidden / heads:g}"
        )
    config: dict[str, Any] = {
        "architectures": ["Lfm2MoeForCausalLM" if experts else "Lfm2ForCausalLM"],
        "model_type": "lfm2_moe" if experts else "lfm2",
        "vocab_size": meta.count("vocab_size", file.index.vocabulary_size or None),
        "hidden_size": hidden,
        "intermediate_size": _dense_width(meta, shapes),
        "num_hidden_layers": len(layers),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "norm_eps": meta.number("attention.layer_norm_rms_epsilon"),
        "conv_L_cache": meta.count("shortconv.l_cache"),
        "conv_bias": any(name.endswith(".conv.conv.bias") for name in shapes),
        "layer_types": layers,
        "rope_theta": theta,
        "max_position_embeddings": meta.count("context_length"),
        "tie_word_embeddings": "lm_head.weight" not in shapes,
    }
    if scaling := rope_scaling(meta, theta, head_dim, rope_divisors):
        config["rope_scaling"] = scaling
    own = _expert_config(meta, shapes) if experts else {"block_auto_adjust_ff_dim": False}
    return config | own | special_ids(file.metadata)


def _layers(meta: Metadata, heads: int, shapes: Shapes) -> tuple[list[str], int]:
    """layer_types and the number of key/value heads: a layer without such heads is a convolution."""
    count = meta.count("block_count")
    stored = {int(match[1]) for name in shapes if (match := _LAYER.fullmatch(name))}
    stated = meta.optional("attention.head_count_kv")
    if not isinstance(stated, list):
        kv_heads = meta.count("attention.head_count_kv", heads)
        stated = [0 if layer in stored else kv_heads for layer in range(count)]
    layers = [_layer_type(meta, stated, each) for each in stated]
    if len(layers) != count:
        raise meta.error("as many entries as layers", "attention.head_count_kv", f"{len(layers)}", f"{count}")
    for layer, kind in enumerate(layers):
        if (kind == "conv") != (layer in stored):
            found = f"{stated[layer]} for layer {layer}"
            expected = "0 heads exactly where the file has shortconv tensors"
            raise meta.error("contradicts the tensors", "attention.head_count_kv", found, expected)
    distinct = {int(each) for each in stated if each}
    if len(distinct) > 1:
        raise meta.error("differs between layers", "attention.head_count_kv", stated, "one number beside 0")
    return layers, distinct.pop() if distinct else heads


def _layer_type(meta: Metadata, stated: Value, each: Value) -> str:
    if type(each) is not int or each < 0:
        raise meta.error("metadata key has an unusable value", "attention.head_count_kv", stated, "numbers of heads")
    return "full_attention" if each else "conv"


def _dense_width(meta: Metadata, shapes: Shapes) -> int:
    widths = [shape[0] for name, shape in sorted(shapes.items()) if name.endswith(".feed_forward.w1.weight")]
    return widths[0] if widths else meta.count("feed_forward_length")


def _expert_config(meta: Metadata, shapes: Shapes) -> dict[str, Any]:
    gating = meta.count("expert_gating_func")
    if gating != _SIGMOID:
        raise meta.error("gating is not supported", "expert_gating_func", gating, f"{_SIGMOID} (sigmoid)")
    if meta.optional("expert_weights_norm") is False:
        raise meta.error("weights that are not normalized", "expert_weights_norm", False, "true")
    experts, dense = meta.count("expert_count"), meta.optional("leading_dense_block_count")
    if type(dense) is not int or not 0 <= dense <= meta.count("block_count"):
        raise meta.error("unusable value", "leading_dense_block_count", dense, "a number of layers")
    widths = {shape[0] for name, shape in shapes.items() if re.search(r"\.experts\.\d+\.w1\.weight$", name)}
    gates = {shape[0] for name, shape in shapes.items() if name.endswith(".feed_forward.gate.weight")}
    if gates - {experts}:
        raise meta.error("differs from the routers' rows", "expert_count", experts, str(sorted(gates)))
    return {
        "moe_intermediate_size": min(widths) if widths else meta.count("expert_feed_forward_length"),
        "num_dense_layers": dense,
        "num_experts": experts,
        "num_experts_per_tok": meta.count("expert_used_count"),
        "use_expert_bias": any(name.endswith(".expert_bias") for name in shapes),
        "norm_topk_prob": True,
        "routed_scaling_factor": meta.number("expert_weights_scale", 1.0),
    }
