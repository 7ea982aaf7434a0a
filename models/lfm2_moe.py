"""LFM2 with experts: after some dense layers, each row's feed-forward goes through the few experts it chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tfjax.models import lfm2
from tfjax.models.blocks.experts import ExpertsConfig
from tfjax.models.config import ConfigError, flag, reject_unknown, require_number, require_size
from tfjax.models.family import Family
from tfjax.models.lfm2_config import KNOWN_KEYS, Lfm2Config, read_config

MOE_KEYS = KNOWN_KEYS | frozenset(
    """intermediate_size moe_intermediate_size num_dense_layers num_experts num_experts_per_tok use_expert_bias
    routed_scaling_factor norm_topk_prob output_router_logits""".split()  # noqa: SIM905
)


def config_from_hf(config: Mapping[str, Any]) -> Lfm2Config:
    """Read a Hugging Face config.json of an LFM2 with experts. Widths are as stored.

    Raises:
        ConfigError: naming the key that is missing, inconsistent or not supported.
    """
    reject_unknown(config, MOE_KEYS)
    return read_config(
        config,
        require_size(config, "intermediate_size"),
        dense_layers=_dense_layers(config),
        experts=_experts(config),
    )


def _experts(config: Mapping[str, Any]) -> ExpertsConfig:
    count, picked = require_size(config, "num_experts"), require_size(config, "num_experts_per_tok")
    if picked > count:
        raise ConfigError(f"config.json: num_experts_per_tok is {picked}; at most num_experts {count} is expected")
    return ExpertsConfig(
        count=count,
        picked=picked,
        inner=require_size(config, "moe_intermediate_size"),
        biased=_on(config, "use_expert_bias"),
        normalised=_on(config, "norm_topk_prob"),
        scale=require_number(config, "routed_scaling_factor", default=1.0),
    )


def _on(config: Mapping[str, Any], key: str) -> bool:
    """A flag that is true where it is missing."""
    return config.get(key) is None or flag(config, key)


def _dense_layers(config: Mapping[str, Any]) -> int:
    value = config.get("num_dense_layers")
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"config.json: num_dense_layers is {value!r}; an integer from 0 on is expected")
    return value


FAMILY: Family[Lfm2Config] = replace(lfm2.FAMILY, architecture="Lfm2MoeForCausalLM", config_from_hf=config_from_hf)
