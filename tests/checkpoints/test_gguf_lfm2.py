"""LFM2's GGUF files: metadata becomes the published config.json, tensors the published names, shapes and order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from tests.checkpoints.gguf_lfm2_files import EXPERTS, FF, HIDDEN, INNER, TAPS, arrays, write
from tfjax.checkpoints import CheckpointError, open_checkpoint

BOTH = pytest.mark.parametrize("architecture", ["lfm2", "lfm2moe"])
PART = {"ffn_gate": "w1", "ffn_up": "w3", "ffn_down": "w2"}
ATTENTION = {
    "attn_norm": "operator_norm",
    "ffn_norm": "ffn_norm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.out_proj",
    "attn_q_norm": "self_attn.q_layernorm",
    "attn_k_norm": "self_attn.k_layernorm",
}


def config_of(tmp_path: Path, architecture: str, **options: Any) -> dict[str, Any]:
    return dict(open_checkpoint(write(tmp_path / "m.gguf", architecture, **options)).config)


def common(config: dict[str, Any]) -> dict[str, Any]:
    assert config.pop("norm_eps") == pytest.approx(1e-5)
    json.dumps(config)
    return config


SHARED = {
    "vocab_size": 6,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "conv_L_cache": 3,
    "conv_bias": False,
    "layer_types": ["conv", "full_attention", "conv"],
    "rope_theta": 5000000.0,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def test_every_field_of_the_dense_model(tmp_path: Path) -> None:
    own = {"architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "block_auto_adjust_ff_dim": False}
    assert common(config_of(tmp_path, "lfm2")) == SHARED | own


def test_every_field_of_the_mixture(tmp_path: Path) -> None:
    own = {
        "architectures": ["Lfm2MoeForCausalLM"],
        "model_type": "lfm2_moe",
        "moe_intermediate_size": 32,
        "num_dense_layers": 1,
        "num_experts": 3,
        "num_experts_per_tok": 2,
        "use_expert_bias": True,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
    }
    assert common(config_of(tmp_path, "lfm2moe")) == SHARED | own


@BOTH
def test_width_is_that_of_the_tensors(tmp_path: Path, architecture: str) -> None:
    assert config_of(tmp_path, architecture, keys={"feed_forward_length": 144})["intermediate_size"] == FF


def test_width_of_experts_is_that_of_the_tensors(tmp_path: Path) -> None:
    config = config_of(tmp_path, "lfm2moe", keys={"expert_feed_forward_length": 7})
    assert config["moe_intermediate_size"] == INNER


def test_without_expert_biases(tmp_path: Path) -> None:
    absent = {f"blk.{layer}.exp_probs_b.bias": None for layer in (1, 2)}
    assert config_of(tmp_path, "lfm2moe", tensors=absent)["use_expert_bias"] is False


def test_weight_of_the_routed_sum(tmp_path: Path) -> None:
    keys = {"expert_weights_scale": 2.5, "expert_weights_norm": True}
    assert config_of(tmp_path, "lfm2moe", keys=keys)["routed_scaling_factor"] == 2.5


def test_one_number_of_heads_leaves_the_layers_to_the_tensors(tmp_path: Path) -> None:
    config = config_of(tmp_path, "lfm2", keys={"attention.head_count_kv": 2})
    assert (config["layer_types"], config["num_key_value_heads"]) == (["conv", "full_attention", "conv"], 2)


def test_own_head(tmp_path: Path) -> None:
    head = arrays("lfm2")["token_embd.weight"]
    assert config_of(tmp_path, "lfm2", tensors={"output.weight": head})["tie_word_embeddings"] is False


@BOTH
@pytest.mark.parametrize("norm", ["token_embd_norm.weight", "output_norm.weight"])
def test_tensors(tmp_path: Path, architecture: str, norm: str) -> None:
    source = arrays(architecture)
    stored = {"token_embd_norm.weight": None, norm: source["token_embd_norm.weight"]}
    tensors = open_checkpoint(write(tmp_path / "m.gguf", architecture, tensors=stored)).tensors
    wanted = {
        "model.embed_tokens.weight": source["token_embd.weight"],
        "model.embedding_norm.weight": source["token_embd_norm.weight"],
    }
    for layer in range(3):
        wanted |= layer_weights(source, layer)
    assert sorted(tensors.infos) == sorted(wanted)
    for name, values in wanted.items():
        assert tensors.infos[name].shape == values.shape, name
        np.testing.assert_array_equal(tensors.read(name), values, err_msg=name)


def layer_weights(source: dict[str, Any], layer: int) -> dict[str, Any]:
    """Published names and values of a layer, in the order of rows that the file has: nothing is permuted."""
    here, there = f"blk.{layer}", f"model.layers.{layer}"
    found = {}
    for name, values in source.items():
        part = name.removeprefix(f"{here}.").removesuffix(".weight")
        if not name.startswith(f"{here}."):
            continue
        if part == "shortconv.conv":
            found[f"{there}.conv.conv.weight"] = values.reshape(HIDDEN, 1, TAPS)
        elif part.startswith("shortconv"):
            found[f"{there}.conv.{part.removeprefix('shortconv.')}.weight"] = values
        elif part in ATTENTION:
            found[f"{there}.{ATTENTION[part]}.weight"] = values
        elif part in PART:
            found[f"{there}.feed_forward.{PART[part]}.weight"] = values
        elif part == "ffn_gate_inp":
            found[f"{there}.feed_forward.gate.weight"] = values
        elif part == "exp_probs_b.bias":
            found[f"{there}.feed_forward.expert_bias"] = values
        else:
            matrix = PART[part.removesuffix("_exps")]
            found |= {f"{there}.feed_forward.experts.{e}.{matrix}.weight": values[e] for e in range(EXPERTS)}
    return found


def test_a_quantized_expert_is_read_alone(tmp_path: Path) -> None:
    kind = GGMLQuantizationType.Q8_0
    name = "blk.1.ffn_down_exps.weight"
    blocks = quants.quantize(arrays("lfm2moe")[name], kind)
    path = write(tmp_path / "m.gguf", "lfm2moe", blocks={name: (blocks, kind)})
    tensors = open_checkpoint(path).tensors
    for expert in range(EXPERTS):
        published = f"model.layers.1.feed_forward.experts.{expert}.w2.weight"
        np.testing.assert_array_equal(tensors.read(published), quants.dequantize(blocks, kind)[expert])
        info = tensors.infos[published]
        assert (info.dtype, info.shape, info.stored_bytes) == ("Q8_0", (HIDDEN, INNER), HIDDEN * INNER * 34 // 32)


@pytest.mark.parametrize(
    ("architecture", "keys", "message"),
    [
        ("lfm2", {"attention.head_count_kv": [0, 2]}, r"head_count_kv; found 2; expected 3"),
        (
            "lfm2",
            {"attention.head_count_kv": [0, 2, 2]},
            r"contradicts .*; found 2 for layer 2; expected 0",
        ),
        ("lfm2", {"attention.head_count_kv": [0, 0, 0]}, r"contradicts .*found 0 for layer 1"),
        ("lfm2", {"attention.head_count_kv": [0, -2, 0]}, r"head_count_kv; found \[0, -2, 0\]; expected numbers"),
        ("lfm2", {"attention.key_length": 32}, r"attention\.key_length; found 32; expected 16"),
        ("lfm2", {"shortconv.l_cache": None}, r"metadata key is missing: lfm2\.shortconv\.l_cache"),
        ("lfm2", {"rope.freq_base": None}, r"metadata key is missing: lfm2\.rope\.freq_base"),
        ("lfm2", {"attention.sliding_window": 8}, r"unknown metadata key: lfm2\.attention\.sliding_window; found 8"),
        ("lfm2", {"expert_count": 4}, r"unknown metadata key: lfm2\.expert_count"),
        ("lfm2moe", {"expert_gating_func": 1}, r"lfm2moe\.expert_gating_func; found 1; expected 2 \(sigmoid\)"),
        ("lfm2moe", {"expert_gating_func": None}, r"metadata key is missing: lfm2moe\.expert_gating_func"),
        ("lfm2moe", {"expert_weights_norm": False}, r"expert_weights_norm; found False; expected true"),
        ("lfm2moe", {"expert_count": 4}, r"expert_count; found 4; expected \[3\]"),
        ("lfm2moe", {"expert_used_count": None}, r"metadata key is missing: lfm2moe\.expert_used_count"),
        ("lfm2moe", {"leading_dense_block_count": None}, r"leading_dense_block_count; expected a number of layers"),
        ("lfm2moe", {"leading_dense_block_count": 4}, r"leading_dense_block_count; found 4"),
    ],
)
def test_refused_with_the_key_named(tmp_path: Path, architecture: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        config_of(tmp_path, architecture, keys=keys)


def test_several_numbers_of_heads(tmp_path: Path) -> None:
    attention = {f"blk.2.{name}.weight": arrays("lfm2")[f"blk.1.{name}.weight"] for name in ("attn_q", "attn_k")}
    convolution = dict.fromkeys([f"blk.2.shortconv.{name}.weight" for name in ("conv", "in_proj", "out_proj")])
    keys = {"attention.head_count_kv": [0, 2, 1]}
    with pytest.raises(CheckpointError, match=r"differs between layers.*found \[0, 2, 1\]; expected one number"):
        config_of(tmp_path, "lfm2", keys=keys, tensors={**attention, **convolution})


@pytest.mark.parametrize("name", ["blk.0.ffn_gate_exps.weight", "blk.0.exp_probs_b.bias", "dense_2.weight"])
def test_tensors_of_another_architecture(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "m.gguf", "lfm2", tensors={name: np.zeros((2, 32, 32), np.float32)})
    with pytest.raises(CheckpointError, match=rf"unknown tensor; tensor {name}; expected .* architecture lfm2"):
        open_checkpoint(path)


def test_two_final_norms(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", "lfm2", tensors={"output_norm.weight": np.zeros(HIDDEN, np.float32)})
    with pytest.raises(CheckpointError, match=r"two tensors for one; .*embedding_norm\.weight; found .* and"):
        open_checkpoint(path)
