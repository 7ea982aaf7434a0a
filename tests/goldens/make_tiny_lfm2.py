"""Makes the tiny_lfm2_* checkpoints: random LFM2 models with the logits that transformers gives for fixed ids.

Run in the environment of environment.py:  PEERS/bin/python tests/goldens/make_tiny_lfm2.py
Each directory holds config.json, model.safetensors (float32, random weights) and golden.json with `input_ids` and the
float32 `logits` [position][vocabulary] of Lfm2ForCausalLM or Lfm2MoeForCausalLM, eager attention, on CPU.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers
from transformers import Lfm2Config, Lfm2ForCausalLM, Lfm2MoeConfig, Lfm2MoeForCausalLM

COMMAND = "python tests/goldens/make_tiny_lfm2.py"
HERE = Path(__file__).parent
BASE = {
    "vocab_size": 48,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 7,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "layer_types": ["conv", "full_attention", "conv"],
}
PLAIN = {"block_auto_adjust_ff_dim": False}
MOE = {"moe_intermediate_size": 8, "num_experts": 6, "num_experts_per_tok": 2, "num_dense_layers": 1}
DENSE_VARIANTS = {
    "plain": PLAIN,
    "adjusted": {"intermediate_size": 40, "block_multiple_of": 8},
    "multiplied": {"block_multiple_of": 4, "block_ffn_dim_multiplier": 1.3},
    "four_taps_biases": PLAIN | {"conv_L_cache": 4, "conv_bias": True},
    "attention_first": PLAIN | {"layer_types": ["full_attention", "conv", "full_attention"]},
    "theta_eps": PLAIN | {"norm_eps": 1e-2, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "untied_mqa": PLAIN | {"tie_word_embeddings": False, "num_key_value_heads": 1},
}
MOE_VARIANTS = {
    "moe": MOE,
    "moe_no_bias": MOE | {"use_expert_bias": False},
    "moe_not_normed": MOE | {"norm_topk_prob": False, "routed_scaling_factor": 1.5},
    "moe_neither": MOE | {"use_expert_bias": False, "norm_topk_prob": False},
    "moe_all_sparse": MOE | {"num_dense_layers": 0, "num_experts": 5, "num_experts_per_tok": 3},
    "moe_scaled": MOE | {"num_dense_layers": 2, "routed_scaling_factor": 2.5, "num_experts_per_tok": 1},
}
IDS = 24


def make(name: str, model: torch.nn.Module, vocab: int) -> None:
    with torch.no_grad():
        for key, parameter in [*model.named_parameters(), *model.named_buffers()]:
            if "inv_freq" in key:
                continue
            # Large enough that every part of the model changes the logits well above rounding.
            norm = "norm" in key
            parameter.copy_(torch.randn_like(parameter) * (0.2 if norm else 0.3) + (1.0 if norm else 0.0))
        ids = torch.randint(0, vocab, (1, IDS))
        logits = model(ids).logits[0]
    directory = HERE / f"tiny_lfm2_{name}"
    model.save_pretrained(directory)
    golden = {
        "command": COMMAND,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "input_ids": ids[0].tolist(),
        "logits": [[round(value, 6) for value in row] for row in logits.tolist()],
    }
    (directory / "golden.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    SAME = {"attn_implementation": "eager", "dtype": "float32"}
    variants = [(name, Lfm2Config, Lfm2ForCausalLM, changes) for name, changes in DENSE_VARIANTS.items()]
    variants += [(name, Lfm2MoeConfig, Lfm2MoeForCausalLM, changes) for name, changes in MOE_VARIANTS.items()]
    for index, (variant, config_class, model_class, overrides) in enumerate(variants):
        torch.manual_seed(200 + index)
        settings = config_class(**(BASE | overrides), **SAME)
        make(variant, model_class(settings).eval().float(), settings.vocab_size)
