from __future__ import annotations

from typing import Any

import pytest

from tests.models.dspark_published import DEEPSPEC_QWEN3_4B, LIQUID_2_6B, NANBEIGE, PREFIXED, SPECULATORS
from tfjax.models.blocks.markov import MarkovKind
from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.models.blocks.rope import RopeConfig
from tfjax.models.config import ConfigError
from tfjax.models.dspark_config import DSparkConfig


def test_liquids_published_config() -> None:
    assert DSparkConfig.from_hf(LIQUID_2_6B) == DSparkConfig(
        hidden=2048,
        target_hidden=2048,
        layers=5,
        heads=32,
        kv_heads=8,
        head_dim=64,
        inner=6144,
        norm_eps=1e-5,
        rope=RopeConfig(1e7),
        qk_norm=QKNorm.BEFORE_ROPE,
        interleaved=True,
        vocab=128000,
        draft_vocab=128000,
        block=9,
        mask_token=125017,
        taps=(2, 9, 17, 21, 27),
        target_layers=30,
        markov=MarkovKind.VANILLA,
        markov_rank=256,
        markov_rows=128000,
        confidence=True,
        confidence_with_markov=True,
        confidence_temperatures=(),
        anchor_first=True,
        own_embedding=False,
        own_head=False,
        context=128000,
    )


def test_deepspecs_published_config() -> None:
    config = DSparkConfig.from_hf(DEEPSPEC_QWEN3_4B)
    assert (config.block, config.taps, config.mask_token, config.target_layers) == (7, (1, 9, 17, 25, 33), 151669, 36)
    assert (config.rope, config.interleaved, config.anchor_first) == (RopeConfig(1e6), False, True)
    assert (config.heads, config.head_dim, config.hidden, config.first_slot) == (32, 128, 2560, 0)


def test_nanbeiges_published_config() -> None:
    config = DSparkConfig.from_hf(NANBEIGE)
    assert (config.rope.theta, config.block, config.taps, config.mask_token) == (7e7, 7, (1, 20, 40), 4)
    assert (config.interleaved, config.anchor_first) == (False, True)
    assert (config.confidence, config.confidence_with_markov) == (True, True)


def test_speculators_published_config() -> None:
    config = DSparkConfig.from_hf(SPECULATORS)
    assert (config.taps, config.block, config.anchor_first, config.first_slot) == ((1, 9, 17), 7, False, 1)
    assert (config.layers, config.vocab, config.draft_vocab) == (3, 151936, 32000)
    assert (config.markov, config.confidence_with_markov) == (MarkovKind.GATED, False)


def test_prefixed_keys() -> None:
    config = DSparkConfig.from_hf(PREFIXED)
    assert (config.block, config.mask_token, config.taps, config.markov_rank) == (5, 128799, (37, 38, 39), 256)
    assert config.head_dim == 64


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"qk_norm_order": "after_rope"}, "qk_norm", QKNorm.AFTER_ROPE),
        ({"qk_norm_order": "none"}, "qk_norm", QKNorm.NONE),
        ({"markov_head_type": "rnn"}, "markov", MarkovKind.RNN),
        ({"enable_confidence_head": False}, "confidence", False),
        ({"confidence_head_with_markov": False}, "confidence_with_markov", False),
        ({"confidence_temperatures": [1, 2, 3, 4, 5, 6, 7, 8, 9.5]}, "confidence_temperatures", (*range(1, 9), 9.5)),
        ({"draft_vocab_size": 32000}, "draft_vocab", 32000),
        ({"target_hidden_size": 1024}, "target_hidden", 1024),
        ({"block_size": 31}, "block", 31),
        ({"num_key_value_heads": None}, "kv_heads", 32),
    ],
)
def test_each_key(change: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(DSparkConfig.from_hf(LIQUID_2_6B | change), field) == value


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": None}, "'hidden_size'"),
        ({"num_key_value_heads": 5}, "num_attention_heads 32 is no multiple of 5"),
        ({"head_dim": 63}, "head_dim is 63; rotation needs an even one"),
        ({"rope_theta": None}, "lacks rope_theta"),
        ({"rope_theta": 10.0}, r"rope_theta is 10\.0; between 1e\+03 and 1e\+10"),
        ({"rope_theta": 1e12}, "rope_theta is 1000000000000"),
        ({"rope_parameters": {"rope_theta": 5e6}}, r"rope_theta is 10000000\.0 and rope_parameters\.rope_theta is 5"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope type 'yarn' is not supported"),
        ({"block_size": 32}, "block_size is 32; at most 31"),
        ({"block_size": 0}, "block_size is 0"),
        ({"block_size": 1, "sample_from_anchor": False}, "block_size is 1, the anchor alone"),
        ({"markov_rank": 0}, "markov_rank is 0"),
        ({"markov_rank": 5000}, "markov_rank is 5000; at most 4096"),
        ({"markov_head_type": "lstm"}, "markov_head_type is 'lstm'; expected is one of vanilla, gated, rnn"),
        ({"qk_norm_order": "before"}, "qk_norm_order is 'before'; expected is one of none, before_rope, after_rope"),
        ({"draft_vocab_size": 128001}, "draft_vocab_size is 128001; at most 128000"),
        ({"enable_confidence_head": 1}, "enable_confidence_head is 1; true or false"),
        ({"confidence_temperatures": [1.0]}, r"confidence_temperatures is \[1\.0\]; 9 numbers"),
        ({"confidence_temperatures": [0.0] * 9}, r"confidence_temperatures is 0\.0; a positive number"),
        ({"dflash_config": {"mask_token_id": 128000, "target_layer_ids": [1]}}, "mask_token_id is 128000"),
        ({"dflash_config": {"target_layer_ids": [1]}}, "mask_token_id is None"),
    ],
)
def test_a_config_that_cannot_be_honoured(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        DSparkConfig.from_hf(LIQUID_2_6B | change)


def test_the_longest_block_with_the_anchor_counted() -> None:
    assert DSparkConfig.from_hf(SPECULATORS | {"block_size": 32}).block == 31
    with pytest.raises(ConfigError, match="at most 32"):
        DSparkConfig.from_hf(SPECULATORS | {"block_size": 33})
