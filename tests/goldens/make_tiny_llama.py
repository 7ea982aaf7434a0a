"""Makes the tiny_llama_* checkpoints: random Llama models with the logits that transformers gives for fixed ids.

Run in the environment of environment.py:  PEERS/bin/python tests/goldens/make_tiny_llama.py
Each directory holds config.json, model.safetensors (float32, random weights) and golden.json with `input_ids` and the
float32 `logits` [position][vocabulary] of LlamaForCausalLM, eager attention, on CPU.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

COMMAND = "python tests/goldens/make_tiny_llama.py"
HERE = Path(__file__).parent
BASE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
VARIANTS = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "mha": {"num_key_value_heads": 4},
    "mqa": {"num_key_value_heads": 1},
    "head_dim": {"head_dim": 16},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "eps_theta": {"rms_norm_eps": 1e-2, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "llama3_rope": {"rope_parameters": LLAMA3, "max_position_embeddings": 256},
    "linear_rope": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
}
IDS = 40


def make(name: str, changes: dict[str, object], seed: int) -> None:
    torch.manual_seed(seed)
    config = LlamaConfig(**(BASE | changes), attn_implementation="eager", dtype="float32")
    model = LlamaForCausalLM(config).eval().float()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            # Large enough that every part of the model changes the logits well above rounding.
            norm = key.endswith("norm.weight")
            parameter.copy_(torch.randn_like(parameter) * (0.2 if norm else 0.3) + (1.0 if norm else 0.0))
        ids = torch.randint(0, config.vocab_size, (1, IDS))
        logits = model(ids).logits[0]
    directory = HERE / f"tiny_llama_{name}"
    model.save_pretrained(directory)
    golden = {
        "command": COMMAND,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "input_ids": ids[0].tolist(),
        "logits": [[round(value, 6) for value in row] for row in logits.tolist()],
    }
    (directory / "golden.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    for index, (variant, overrides) in enumerate(VARIANTS.items()):
        make(variant, overrides, seed=100 + index)
