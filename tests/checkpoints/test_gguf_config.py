"""GGUF metadata becomes the config.json it stands for; what is not understood is refused by name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoints.gguf_files import HEAD_DIM, write_gguf
from tfjax.checkpoints import CheckpointError, open_checkpoint
from tfjax.checkpoints.gguf_rope import llama3_divisors

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def config_of(tmp_path: Path, **options: Any) -> dict[str, Any]:
    return dict(open_checkpoint(write_gguf(tmp_path / "m.gguf", **options)).config)


def test_every_field(tmp_path: Path) -> None:
    config = config_of(tmp_path, metadata={"tokenizer.ggml.padding_token_id": 3})
    assert config.pop("rms_norm_eps") == pytest.approx(1e-5)
    assert config == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": 6,
        "hidden_size": 256,
        "intermediate_size": 256,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "rope_theta": 5000.0,
        "rope_scaling": None,
        "max_position_embeddings": 64,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 3,
    }
    json.dumps(config)


def test_usual_values_for_absent_keys(tmp_path: Path) -> None:
    absent = ("llama.attention.head_count_kv", "llama.rope.freq_base", "llama.vocab_size", "llama.rope.dimension_count")
    config = config_of(tmp_path, without=absent)
    found = [config[key] for key in ("num_key_value_heads", "rope_theta", "vocab_size", "head_dim")]
    assert found == [4, 10000.0, 6, 64]


def test_equal_counts_per_layer_count_as_one(tmp_path: Path) -> None:
    assert config_of(tmp_path, metadata={"llama.attention.head_count_kv": [2]})["num_key_value_heads"] == 2
    with pytest.raises(CheckpointError, match=r"llama\.attention\.head_count_kv; found \[2, 1\]"):
        config_of(tmp_path, metadata={"llama.attention.head_count_kv": [2, 1]})


def test_several_ends_of_a_reply(tmp_path: Path) -> None:
    more = {"tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.eom_token_id": 1}
    assert config_of(tmp_path, metadata=more)["eos_token_id"] == [1, 5]


@pytest.mark.parametrize(
    "metadata",
    [
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
        {"llama.rope.scale_linear": 4.0},
    ],
)
def test_linear_scaling(tmp_path: Path, metadata: dict[str, Any]) -> None:
    assert config_of(tmp_path, metadata=metadata)["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}


def test_other_scaling_keeps_its_name_for_the_model_to_judge(tmp_path: Path) -> None:
    metadata = {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 16,
    }
    wanted = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    assert config_of(tmp_path, metadata=metadata)["rope_scaling"] == wanted


def test_no_scaling_by_name(tmp_path: Path) -> None:
    assert config_of(tmp_path, metadata={"llama.rope.scaling.type": "none"})["rope_scaling"] is None


def test_llama3_scaling_is_recovered_from_its_divisors(tmp_path: Path) -> None:
    theta = {"llama.rope.freq_base": 500000.0}
    divisors = llama3_divisors(500000.0, HEAD_DIM, LLAMA3).astype(np.float32)
    config = config_of(tmp_path, metadata=theta, tensors={"rope_freqs.weight": divisors})
    assert config["rope_scaling"] == LLAMA3
    assert "rope_freqs.weight" not in open_checkpoint(tmp_path / "m.gguf").tensors.infos


def test_divisors_of_one_are_no_scaling(tmp_path: Path) -> None:
    ones = np.ones(HEAD_DIM // 2, np.float32)
    assert config_of(tmp_path, tensors={"rope_freqs.weight": ones})["rope_scaling"] is None


@pytest.mark.parametrize("wrong", ["value", "length"])
def test_divisors_of_another_rule_are_refused(tmp_path: Path, wrong: str) -> None:
    divisors = llama3_divisors(5000.0, HEAD_DIM, LLAMA3).astype(np.float32)
    divisors = divisors[:-1] if wrong == "length" else np.where(np.arange(32) == 20, divisors * 1.01, divisors)
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight; found .*; expected .*safetensors"):
        config_of(tmp_path, tensors={"rope_freqs.weight": divisors.astype(np.float32)})


def test_llama3_divisors_follow_the_published_rule() -> None:
    """Against the rule as published, written frequency by frequency."""
    old, factor, low, high = 8192, 8.0, 1.0, 4.0
    wanted = []
    for index in range(32):
        frequency = 500000.0 ** (-2 * index / 64)
        wavelength = 2 * math.pi / frequency
        if wavelength < old / high:
            scaled = frequency
        elif wavelength > old / low:
            scaled = frequency / factor
        else:
            smooth = (old / wavelength - low) / (high - low)
            scaled = (1 - smooth) * frequency / factor + smooth * frequency
        wanted.append(frequency / scaled)
    found = llama3_divisors(500000.0, 64, LLAMA3)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert any(1.0 < value < factor for value in found)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"general.architecture": "gemma3"}, r"general\.architecture\); found 'gemma3'; expected 'llama'"),
        ({"general.type": "adapter"}, r"not a whole model \(general\.type\); found 'adapter'"),
        ({"split.count": 3}, r"split\.count 3.*llama-gguf-split --merge"),
        ({"llama.attention.sliding_window": 512}, r"unknown metadata key: llama\.attention\.sliding_window; found 512"),
        ({"llama.expert_count": 8}, r"mixture of experts is not supported: llama\.expert_count; found 8"),
        ({"llama.tensor_data_layout": "odd"}, r"unknown tensor layout: llama\.tensor_data_layout; found odd"),
        ({"llama.attention.key_length": 32}, r"llama\.rope\.dimension_count; found 64; expected 32"),
        ({"llama.attention.value_length": 32}, r"llama\.attention\.value_length; found 32; expected 64"),
        ({"llama.rope.scaling.attn_factor": 2.0}, r"attn_factor; found 2\.0; expected 1\.0"),
        ({"llama.block_count": 0}, r"llama\.block_count; found 0; expected a positive integer"),
        ({"llama.block_count": True}, r"llama\.block_count; found True"),
        ({"llama.embedding_length": "many"}, r"llama\.embedding_length; found many"),
        ({"llama.rope.freq_base": float("inf")}, r"llama\.rope\.freq_base; found inf; expected a positive number"),
    ],
)
def test_refused_with_the_key_named(tmp_path: Path, metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        config_of(tmp_path, metadata=metadata)


@pytest.mark.parametrize(
    "key",
    [
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "attention.head_count",
        "context_length",
        "attention.layer_norm_rms_epsilon",
    ],
)
def test_missing_key_is_named(tmp_path: Path, key: str) -> None:
    with pytest.raises(CheckpointError, match=rf"metadata key is missing: llama\.{key}"):
        config_of(tmp_path, without=(f"llama.{key}",))


def test_mlp_biases_are_seen(tmp_path: Path) -> None:
    assert config_of(tmp_path, tensors={"blk.0.ffn_gate.bias": np.zeros(256, np.float32)})["mlp_bias"] is True
