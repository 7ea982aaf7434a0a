from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.models.tiny_lfm2 import EXPERTS, MOE
from tfjax.models import lfm2, lfm2_moe
from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.models.blocks.rope import RopeConfig
from tfjax.models.config import ConfigError
from tfjax.models.lfm2_config import stored_width

BASE: dict[str, Any] = {
    "architectures": ["Lfm2ForCausalLM"],
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "norm_eps": 1e-5,
    "conv_L_cache": 3,
    "conv_bias": False,
    "layer_types": ["conv", "full_attention", "conv"],
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
}
HF_DENSE = BASE | {"intermediate_size": 48, "block_auto_adjust_ff_dim": False}
HF_MOE = BASE | {
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "num_dense_layers": 1,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "use_expert_bias": True,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
}
DENSE = replace(
    MOE, dense_layers=3, experts=None, inner_note="intermediate_size 48 with block_auto_adjust_ff_dim false"
)


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


def test_what_a_config_says() -> None:
    assert lfm2.config_from_hf(HF_DENSE) == DENSE
    assert lfm2_moe.config_from_hf(HF_MOE) == MOE
    assert (MOE.layers, MOE.head_dim, MOE.attention.qk_norm) == (3, 8, QKNorm.BEFORE_ROPE)
    assert (MOE.attention.norm_eps, MOE.attention.interleaved) == (MOE.norm_eps, False)


CHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"vocab_size": 65}, {"vocab": 65}),
    ({"hidden_size": 64}, {"hidden": 64}),
    ({"num_attention_heads": 8}, {"heads": 8}),
    ({"num_key_value_heads": 4}, {"kv_heads": 4}),
    ({"norm_eps": 0.25}, {"norm_eps": 0.25}),
    ({"conv_L_cache": 4}, {"taps": 4}),
    ({"conv_bias": True}, {"conv_bias": True}),
    ({"layer_types": ["full_attention", "conv", "conv"]}, {"attends": (True, False, False)}),
    ({"layer_types": None, "full_attn_idxs": [0, 2]}, {"attends": (True, False, True)}),
    ({"layer_types": None}, {"attends": (True, True, True)}),
    ({"full_attn_idxs": [0]}, {}),
    ({"max_position_embeddings": 99}, {"context": 99}),
    ({"tie_word_embeddings": False}, {"tied": False}),
    ({"tie_word_embeddings": None}, {}),
    ({"tie_embedding": False}, {"tied": False}),
    ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e6}}, {"rope": RopeConfig(5e6)}),
    ({"rope_parameters": None, "rope_theta": 5e6}, {"rope": RopeConfig(5e6)}),
    ({"rope_parameters": None, "theta": 5e6}, {"rope": RopeConfig(5e6)}),
    ({"rope_parameters": None}, {}),
    ({"rope_parameters": {"rope_theta": 1e7}, "rope_theta": 1e6}, {"rope": RopeConfig(1e7)}),
    ({"block_dim": 7, "conv_dim": 1, "num_heads": 3, "use_pos_enc": True, "block_norm_eps": 1e-3}, {}),
    ({"block_mlp_init_scale": 1.0, "conv_use_xavier_init": True, "_name_or_path": "x"}, {}),
]


@pytest.mark.parametrize(("changes", "wanted"), CHANGES)
def test_every_key_that_matters(changes: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert lfm2.config_from_hf(HF_DENSE | changes) == replace(DENSE, **wanted)
    assert lfm2_moe.config_from_hf(HF_MOE | changes) == replace(MOE, **wanted)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"num_experts": 6}, {"count": 6}),
        ({"num_experts_per_tok": 8}, {"picked": 8}),
        ({"moe_intermediate_size": 24}, {"inner": 24}),
        ({"use_expert_bias": False}, {"biased": False}),
        ({"norm_topk_prob": False}, {"normalised": False}),
        ({"routed_scaling_factor": 2.5}, {"scale": 2.5}),
        ({"use_expert_bias": None, "norm_topk_prob": None, "routed_scaling_factor": None}, {}),
    ],
)
def test_every_key_of_experts(changes: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert lfm2_moe.config_from_hf(HF_MOE | changes).experts == replace(EXPERTS, **wanted)


def test_the_dense_layers_of_a_model_with_experts() -> None:
    for count, wanted in ((0, 0), (2, 2), (9, 3)):
        assert lfm2_moe.config_from_hf(HF_MOE | {"num_dense_layers": count}).dense_layers == wanted
    assert lfm2_moe.config_from_hf(HF_MOE | {"intermediate_size": 49}).inner == 49, "never adjusted"


@pytest.mark.parametrize(
    ("changes", "width"),
    [
        ({"intermediate_size": 12288}, 8192),
        ({"intermediate_size": 6656}, 4608),
        ({"intermediate_size": 10240}, 6912),
        ({"intermediate_size": 10752, "block_auto_adjust_ff_dim": False}, 10752),
        ({"intermediate_size": 12288, "block_auto_adjust_ff_dim": True}, 8192),
        ({"intermediate_size": 8192, "block_ff_dim": 12288}, 8192),
        ({"intermediate_size": 100, "block_multiple_of": 8, "block_ffn_dim_multiplier": 1.3}, 88),
        ({"intermediate_size": 100, "block_ffn_dim_multiplier": None}, 66),
    ],
)
def test_the_width_rule(changes: dict[str, Any], width: int) -> None:
    found, note = stored_width(changes)
    assert found == width
    named = "block_ff_dim" if "block_ff_dim" in changes else "intermediate_size"
    for word in (f"{named} {changes[named]}", "block_auto_adjust_ff_dim"):
        assert word in note


REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"layer_types": ["conv", "full_attention"]}, ["layer_types", "2 entries", "num_hidden_layers 3"]),
    ({"layer_types": ["conv"] * 4}, ["layer_types", "4 entries", "3"]),
    ({"layer_types": "conv"}, ["layer_types", "'conv'", "3"]),
    ({"layer_types": ["conv", "mamba", "conv"]}, ["layer_types[1]", "'mamba'", "'full_attention', 'conv'"]),
    ({"layer_types": None, "full_attn_idxs": [3]}, ["full_attn_idxs", "3", "0 to 2"]),
    ({"layer_types": None, "full_attn_idxs": [True]}, ["full_attn_idxs", "True"]),
    ({"layer_types": None, "full_attn_idxs": 2}, ["full_attn_idxs", "2", "list"]),
    ({"conv_L_cache": 65}, ["conv_L_cache", "65", "64"]),
    ({"conv_L_cache": 0}, ["conv_L_cache", "0"]),
    ({"hidden_size": 36}, ["hidden_size 36", "num_attention_heads 4"]),
    ({"hidden_size": 30}, ["hidden_size 30", "num_attention_heads 4"]),
    ({"num_key_value_heads": 3}, ["num_attention_heads 4", "num_key_value_heads 3"]),
    ({"conv_bias": "no"}, ["conv_bias", "'no'"]),
    ({"tie_embedding": 1}, ["tie_embedding", "1"]),
    ({"rope_parameters": {"rope_type": "yarn"}}, ["'yarn'"]),
    ({"attention_sinks": 4}, ["attention_sinks", "4"]),
    *[({key: None}, [key]) for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")],
    *[({key: None}, [key]) for key in ("num_key_value_heads", "norm_eps", "conv_L_cache", "max_position_embeddings")],
    ({"intermediate_size": None}, ["intermediate_size"]),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_what_cannot_be_honoured_is_refused(changes: dict[str, Any], words: list[str]) -> None:
    for read, base in ((lfm2.config_from_hf, HF_DENSE), (lfm2_moe.config_from_hf, HF_MOE)):
        with pytest.raises(ConfigError) as refusal:
            read(base | changes)
        for word in words:
            assert word in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_experts_per_tok": 9}, ["num_experts_per_tok", "9", "num_experts 8"]),
        ({"num_experts_per_tok": 0}, ["num_experts_per_tok", "0"]),
        ({"num_experts": None}, ["num_experts"]),
        ({"moe_intermediate_size": None}, ["moe_intermediate_size"]),
        ({"num_dense_layers": -1}, ["num_dense_layers", "-1"]),
        ({"num_dense_layers": None}, ["num_dense_layers", "None"]),
        ({"use_expert_bias": 1}, ["use_expert_bias", "1"]),
        ({"routed_scaling_factor": 0}, ["routed_scaling_factor", "0"]),
        ({"n_group": 4, "moe_router_topk": 3}, ["moe_router_topk", "3"]),
    ],
)
def test_experts_that_cannot_be_honoured_are_refused(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as refusal:
        lfm2_moe.config_from_hf(HF_MOE | changes)
    for word in words:
        assert word in str(refusal.value)
    assert lfm2_moe.config_from_hf(without(HF_MOE, "use_expert_bias")) == MOE
