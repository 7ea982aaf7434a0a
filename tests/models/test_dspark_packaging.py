from __future__ import annotations

from typing import Any

import pytest

from tests.models.dspark_published import DEEPSPEC_QWEN3_4B, LIQUID_2_6B, NANBEIGE, PREFIXED, SPECULATORS
from tfjax.models.config import ConfigError
from tfjax.models.dspark_packaging import ARCHITECTURES, unpack
from tfjax.models.registry import drafter_family_for


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


@pytest.mark.parametrize(
    ("config", "interleaved"),
    [
        (LIQUID_2_6B, True),
        (LIQUID_2_6B | {"rope_is_neox_style": True}, False),
        (without(LIQUID_2_6B, "rope_is_neox_style"), True),
        (without(LIQUID_2_6B, "rope_is_neox_style") | {"is_neox_style": True}, False),
        (LIQUID_2_6B | {"rope_is_neox_style": True, "is_neox_style": False}, False),
        (DEEPSPEC_QWEN3_4B, False),
        (DEEPSPEC_QWEN3_4B | {"is_neox_style": False}, True),
        (NANBEIGE, False),
        (SPECULATORS, False),
        (PREFIXED, False),
    ],
)
def test_how_rope_pairs(config: dict[str, Any], interleaved: bool) -> None:
    """A stated key wins, rope_is_neox_style first; the architecture's name tells otherwise."""
    assert unpack(config).interleaved is interleaved


@pytest.mark.parametrize(
    ("config", "first"),
    [
        (LIQUID_2_6B, True),
        (DEEPSPEC_QWEN3_4B, True),
        (DEEPSPEC_QWEN3_4B | {"sample_from_anchor": False}, False),
        (SPECULATORS, False),
        (without(SPECULATORS, "sample_from_anchor"), False),
        (SPECULATORS | {"sample_from_anchor": True}, True),
    ],
)
def test_which_slot_makes_the_first_draft(config: dict[str, Any], first: bool) -> None:
    assert unpack(config).anchor_first is first


def test_speculators_count_layers_from_the_embedding() -> None:
    assert unpack(SPECULATORS).taps == (1, 9, 17)
    assert unpack(SPECULATORS | {"aux_hidden_state_layer_ids": [0, 4]}).taps == (-1, 3)


def test_a_shared_architecture_needs_the_projector_type() -> None:
    shared = NANBEIGE | {"architectures": ["DFlashDraftModel"]}
    assert unpack(shared).taps == (1, 20, 40)
    plain = shared | {"dflash_config": without(NANBEIGE["dflash_config"], "projector_type")}
    with pytest.raises(ConfigError, match="'DFlashDraftModel' without projector_type 'dspark' is no DSpark drafter"):
        unpack(plain)


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES | {"DFlashDraftModel"}))
def test_every_architecture_is_registered(architecture: str) -> None:
    assert drafter_family_for(architecture).config_from_hf(LIQUID_2_6B).taps == (2, 9, 17, 21, 27)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (NANBEIGE | {"dflash_config": {"projector_type": "dflash2"}}, "dflash_config.projector_type is 'dflash2'"),
        (SPECULATORS | {"speculators_model_type": "eagle3"}, "speculators_model_type is 'eagle3'"),
        (without(SPECULATORS, "transformer_layer_config"), "'transformer_layer_config'"),
        (SPECULATORS | {"transformer_layer_config": {"layer_types": ["sliding_attention"]}}, "'sliding_attention'"),
        (SPECULATORS | {"sample_from_anchor": "no"}, "sample_from_anchor is 'no'"),
        (LIQUID_2_6B | {"mask_token_id": 3}, r"mask_token_id is 3 and dflash_config\.mask_token_id is 125017"),
        (PREFIXED | {"dspark_config": {"markov_rank": 4}}, r"dspark_markov_rank is 256 and dspark_config\.markov_rank"),
        (LIQUID_2_6B | {"dflash_config": [1]}, r"dflash_config is \[1\]; an object"),
        (DEEPSPEC_QWEN3_4B | {"target_layer_ids": None}, "target_layer_ids is None; a list of the target's layers"),
        (DEEPSPEC_QWEN3_4B | {"target_layer_ids": []}, r"target_layer_ids is \[\]"),
        (DEEPSPEC_QWEN3_4B | {"target_layer_ids": [True]}, r"target_layer_ids is \[True\]"),
        (LIQUID_2_6B | {"rope_is_neox_style": "yes"}, "rope_is_neox_style is 'yes'; true or false"),
        (LIQUID_2_6B | {"architectures": ["Qwen3ForCausalLM"]}, "'Qwen3ForCausalLM' without projector_type"),
    ],
)
def test_what_is_no_dspark_drafter(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        unpack(config)


def test_a_key_that_is_stated_twice_alike_is_fine() -> None:
    assert unpack(LIQUID_2_6B | {"mask_token_id": 125017}).fields["mask_token_id"] == 125017


def test_null_states_nothing() -> None:
    assert unpack(LIQUID_2_6B | {"mask_token_id": None}).fields["mask_token_id"] == 125017
    assert "markov_rank" not in unpack(LIQUID_2_6B | {"markov_rank": None}).fields
