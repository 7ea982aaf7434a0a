"""The values of published DSpark configs, one of each packaging, with keys of the target's that ride along."""

from __future__ import annotations

from typing import Any

LIQUID_2_6B: dict[str, Any] = {
    "architectures": ["Lfm2DSparkDraftModel"],
    "model_type": "qwen3",
    "hidden_size": 2048,
    "num_hidden_layers": 5,
    "layer_types": ["full_attention"] * 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 6144,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "vocab_size": 128000,
    "rope_theta": 1e7,
    "max_position_embeddings": 128000,
    "block_size": 9,
    "markov_rank": 256,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "rope_is_neox_style": False,
    "dflash_config": {
        "mask_token_id": 125017,
        "target_layer_ids": [2, 9, 17, 21, 27],
        "num_target_layers": 30,
    },
    "dtype": "bfloat16",
}
"""LiquidAI/LFM2.5-2.6B-DSpark."""

DEEPSPEC_QWEN3_4B: dict[str, Any] = {
    "architectures": ["Qwen3DSparkModel"],
    "model_type": "qwen3",
    "hidden_size": 2560,
    "num_hidden_layers": 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 9728,
    "rms_norm_eps": 1e-6,
    "vocab_size": 151936,
    "rope_theta": None,
    "rope_parameters": {"rope_theta": 1e6, "rope_type": "default", "partial_rotary_factor": 1.0},
    "max_position_embeddings": 40960,
    "block_size": 7,
    "mask_token_id": 151669,
    "target_layer_ids": [1, 9, 17, 25, 33],
    "num_target_layers": 36,
    "markov_rank": 256,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
    "num_anchors": 512,
    "sliding_window": 4096,
    "use_sliding_window": False,
    "num_experts": 128,
    "attention_bias": False,
    "tie_word_embeddings": True,
}
"""deepseek-ai/dspark_qwen3_4b_block7, flat keys; the last ones are the target's."""

NANBEIGE: dict[str, Any] = {
    "architectures": ["Qwen3DSparkModel"],
    "hidden_size": 2560,
    "num_hidden_layers": 4,
    "num_attention_heads": 20,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 9728,
    "rms_norm_eps": 1e-5,
    "vocab_size": 166144,
    "rope_theta": 7e7,
    "max_position_embeddings": 65536,
    "block_size": 7,
    "markov_rank": 256,
    "dflash_config": {"projector_type": "dspark", "mask_token_id": 4, "target_layer_ids": [1, 20, 40]},
}
"""Nanbeige's form: theta, block and packaging are published, the other sizes made up."""

SPECULATORS: dict[str, Any] = {
    "architectures": ["DSparkSpeculator"],
    "model_type": "speculators",
    "speculators_model_type": "dspark",
    "aux_hidden_state_layer_ids": [2, 10, 18],
    "block_size": 8,
    "draft_vocab_size": 32000,
    "mask_token_id": 151669,
    "markov_rank": 256,
    "markov_head_type": "gated",
    "enable_confidence_head": True,
    "confidence_head_with_markov": False,
    "sample_from_anchor": False,
    "transformer_layer_config": {
        "model_type": "qwen3",
        "hidden_size": 2560,
        "num_hidden_layers": 3,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 9728,
        "rms_norm_eps": 1e-6,
        "vocab_size": 151936,
        "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
        "max_position_embeddings": 40960,
        "layer_types": ["full_attention"] * 3,
    },
}
"""vLLM's speculators: tapped layers counted from the embedding, the anchor counted in the block."""

PREFIXED: dict[str, Any] = {
    "architectures": ["DSparkDraftModel"],
    "hidden_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "intermediate_size": 1024,
    "rms_norm_eps": 1e-6,
    "vocab_size": 129280,
    "rope_theta": 1e4,
    "max_position_embeddings": 65536,
    "dspark_block_size": 5,
    "dspark_noise_token_id": 128799,
    "dspark_target_layer_ids": [37, 38, 39],
    "dspark_markov_rank": 256,
}
"""The prefixed keys of DeepSeek-V4's configs, with layers of an ordinary form."""
