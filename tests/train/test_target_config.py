"""Shapes: parameters, sizes at several precisions, and what serving reads of config.json."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.train.tiny_lfm2 import CONFIG
from tfjax.models import lfm2_moe


def test_serving_reads_the_same_shapes() -> None:
    found = lfm2_moe.FAMILY.config_from_hf(CONFIG.to_hf())
    assert (found.vocab, found.hidden, found.inner, found.context) == (300, 32, 48, 256)
    assert (found.attends, found.dense_layers, found.taps) == ((False, True, False), 1, 3)
    assert (found.heads, found.kv_heads, found.head_dim) == (4, 2, 8)
    assert (found.rope.theta, found.norm_eps, found.tied, found.conv_bias) == (10_000.0, 1e-5, True, False)
    experts = found.experts
    assert experts is not None
    assert (experts.count, experts.picked, experts.inner) == (5, 2, 24)
    assert (experts.biased, experts.normalised, experts.scale) == (True, True, 1.0)


def test_parameters_are_all_tensors() -> None:
    embedding_and_norm = 300 * 32 + 32
    convolution = 4 * 32 * 32 + 3 * 32
    attention = 2 * 32 * 32 + 2 * 16 * 32 + 2 * 8
    routed = 5 * 32 + 5 + 5 * 3 * 24 * 32
    assert CONFIG.parameters == embedding_and_norm + 3 * 64 + 2 * convolution + attention + 3 * 48 * 32 + 2 * routed


def test_stored_sizes_count_codes_scales_and_what_is_not_quantized() -> None:
    experts = 2 * 5 * 3 * 24 * 32
    others = 300 * 32 + 2 * 4 * 32 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32
    small = CONFIG.parameters - experts - others
    assert CONFIG.stored_bytes(8) == (experts + others) * 8.5 / 8 + 2 * small
    assert CONFIG.stored_bytes(8, 4) == (experts * 4.5 + others * 8.5) / 8 + 2 * small


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"vocab": 301}, "vocab_size"),
        ({"hidden": 64}, "hidden_size"),
        ({"inner": 49}, "intermediate_size"),
        ({"expert_inner": 25}, "moe_intermediate_size"),
        ({"layers": 4}, "num_hidden_layers"),
        ({"attention": (0,)}, "layer_types"),
        ({"dense_layers": 2}, "num_dense_layers"),
        ({"heads": 8}, "num_attention_heads"),
        ({"kv_heads": 4}, "num_key_value_heads"),
        ({"experts": 6}, "num_experts"),
        ({"picked": 3}, "num_experts_per_tok"),
        ({"taps": 4}, "conv_L_cache"),
        ({"context": 512}, "max_position_embeddings"),
        ({"rope_theta": 5.0}, "rope_theta"),
        ({"norm_eps": 1e-6}, "norm_eps"),
    ],
)
def test_every_field_is_in_the_config_file(changed: dict[str, object], key: str) -> None:
    before, after = CONFIG.to_hf(), replace(CONFIG, **changed).to_hf()  # type: ignore[arg-type]
    assert before[key] != after[key]


def test_a_reply_ends_with_its_turn_or_its_text() -> None:
    assert CONFIG.to_hf()["eos_token_id"] == 7
    assert CONFIG.generation_hf()["eos_token_id"] == [7, 2]
