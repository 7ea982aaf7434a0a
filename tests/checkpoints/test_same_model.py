"""The same LFM2 as a Hugging Face directory and as a GGUF file loads as the same model, to the bit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from gguf import GGUFWriter
from numpy.typing import NDArray

from tests.checkpoints.gguf_files import add_value
from tfjax.checkpoints import TensorSource, open_checkpoint
from tfjax.engine.weights import LoadedModel, load_model

GOLDENS = Path(__file__).parents[1] / "goldens"
VARIANTS = ["plain", "attention_first", "four_taps_biases", "untied_mqa", "moe", "moe_all_sparse", "moe_no_bias"]
OUTER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.embedding_norm.weight": "token_embd_norm.weight",
    "lm_head.weight": "output.weight",
}
INNER = {
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "conv.conv": "shortconv.conv",
    "conv.in_proj": "shortconv.in_proj",
    "conv.out_proj": "shortconv.out_proj",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up",
    "feed_forward.w2": "ffn_down",
    "feed_forward.gate": "ffn_gate_inp",
}
STACKS = {"w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps"}


def metadata(config: dict[str, Any], experts: bool) -> dict[str, Any]:
    kv_heads = config["num_key_value_heads"]
    found = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": [0 if kind == "conv" else kv_heads for kind in config["layer_types"]],
        "attention.layer_norm_rms_epsilon": config["norm_eps"],
        "rope.freq_base": config["rope_parameters"]["rope_theta"],
        "shortconv.l_cache": config["conv_L_cache"],
        "vocab_size": config["vocab_size"],
    }
    if experts:
        found |= {
            "expert_count": config["num_experts"],
            "expert_used_count": config["num_experts_per_tok"],
            "expert_feed_forward_length": config["moe_intermediate_size"],
            "expert_gating_func": 2,
            "leading_dense_block_count": config["num_dense_layers"],
        }
    return found


def tensors(source: TensorSource, experts: int) -> dict[str, NDArray[Any]]:
    """By GGUF names."""
    found = {}
    for name in source.infos:
        if name in OUTER:
            found[OUTER[name]] = source.read(name)
            continue
        layer, part = name.removeprefix("model.layers.").split(".", 1)
        module, _, kind = part.rpartition(".")
        values = source.read(name)
        if part == "feed_forward.expert_bias":
            found[f"blk.{layer}.exp_probs_b.bias"] = values
        elif ".experts.0." in name:
            matrix = module.rpartition(".")[2]
            each = [source.read(name.replace(".experts.0.", f".experts.{expert}.")) for expert in range(experts)]
            found[f"blk.{layer}.{STACKS[matrix]}.weight"] = np.stack(each)
        elif ".experts." not in name:
            squeezed = values[:, 0] if part == "conv.conv.weight" else values
            found[f"blk.{layer}.{INNER[module]}.{kind}"] = squeezed
    return found


def as_gguf(directory: Path, path: Path) -> Path:
    config = json.loads((directory / "config.json").read_text())
    experts = config["model_type"] == "lfm2_moe"
    writer = GGUFWriter(path, "lfm2moe" if experts else "lfm2")
    for key, value in metadata(config, experts).items():
        add_value(writer, f"{writer.arch}.{key}", value)
    for name, values in tensors(open_checkpoint(directory).tensors, config.get("num_experts", 0)).items():
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def loaded(path: Path) -> LoadedModel:
    return load_model(open_checkpoint(path), "float32", lambda phase, share: None)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gguf_is_the_same_model(tmp_path: Path, variant: str) -> None:
    directory = GOLDENS / f"tiny_lfm2_{variant}"
    wanted, found = loaded(directory), loaded(as_gguf(directory, tmp_path / "m.gguf"))
    near = pytest.approx(wanted.config.norm_eps)
    assert found.config.norm_eps == near
    same = {"inner_note": "", "norm_eps": wanted.config.norm_eps}
    assert replace(found.config, **same) == replace(wanted.config, **same)
    leaves = [jax.tree.leaves(nnx.state(model.module)) for model in (wanted, found)]
    for one, other in zip(*leaves, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
