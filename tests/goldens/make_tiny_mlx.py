"""Makes tiny_mlx_*: random LFM2 models quantized and saved by mlx-lm, with the logits that it gives for fixed ids.

Run where mlx-lm is installed (`pip install "mlx[cpu]" mlx-lm`):  python tests/goldens/make_tiny_mlx.py
Each directory holds what mlx-lm saved and golden.json with `input_ids` and float32 `logits` [position][vocabulary];
for these, everything but the packed codes was brought to float32.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models import lfm2, lfm2_moe
from mlx_lm.utils import quantize_model, save_config, save_model

HERE = Path(__file__).parent
IDS = 24
BASE = {
    "vocab_size": 64,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "norm_eps": 1e-5,
    "conv_bias": False,
    "conv_L_cache": 3,
    "tie_word_embeddings": True,
    "rope_theta": 1_000_000.0,
    "layer_types": ["conv", "full_attention", "conv"],
}
DENSE = {
    "architectures": ["Lfm2ForCausalLM"],
    "model_type": "lfm2",
    "block_dim": 64,
    "block_ff_dim": 128,
    "block_multiple_of": 64,
    "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": False,
    "full_attn_idxs": [1],
}
MOE = {
    "architectures": ["Lfm2MoeForCausalLM"],
    "model_type": "lfm2_moe",
    "intermediate_size": 128,
    "moe_intermediate_size": 64,
    "num_dense_layers": 1,
    "num_experts": 3,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "use_expert_bias": True,
}


def randomize(model: Any, seed: int) -> None:
    """Weights that keep activations of a usual size; routers and biases of experts that choose differently by token."""
    draws = np.random.default_rng(seed)
    filled = []
    for name, old in tree_flatten(model.parameters()):
        values = draws.standard_normal(old.shape) / np.sqrt(old.shape[-1] if len(old.shape) > 1 else 64)
        if "norm" in name:
            values = 1 + values
        kind = mx.float32 if name.endswith("expert_bias") else mx.bfloat16
        filled.append((name, mx.array(values.astype(np.float32)).astype(kind)))
    model.update(tree_unflatten(filled))


def make(name: str, module: Any, config: dict[str, Any], group_size: int, bits: int, seed: int) -> None:
    """Saves one quantized model and its logits."""
    model = module.Model(module.ModelArgs.from_dict(config))
    randomize(model, seed)
    predicate = getattr(model, "quant_predicate", None)
    model, config = quantize_model(model, config, group_size, bits, quant_predicate=predicate)
    directory = HERE / name
    save_model(directory, model)
    (directory / "model.safetensors.index.json").unlink()
    save_config(config, directory / "config.json")
    model.set_dtype(mx.float32)
    ids = np.random.default_rng(seed).integers(0, 64, IDS).tolist()
    logits = np.array(model(mx.array([ids])))[0]
    golden = {"mlx_lm": version("mlx-lm"), "input_ids": ids, "logits": logits.round(5).tolist()}
    (directory / "golden.json").write_text(json.dumps(golden) + "\n")


def main() -> None:
    """Writes all directories."""
    make("tiny_mlx_lfm2_4bit", lfm2, BASE | DENSE, 64, 4, 1)
    make("tiny_mlx_lfm2_moe_4bit", lfm2_moe, BASE | MOE, 64, 4, 2)
    make("tiny_mlx_lfm2_moe_6bit", lfm2_moe, BASE | MOE, 32, 6, 3)


if __name__ == "__main__":
    main()
