"""Reading config.json strictly: a key that would change the numbers is understood or refused."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping
from typing import Any

log = logging.getLogger(__name__)

HARMLESS = frozenset(
    """architectures model_type torch_dtype dtype transformers_version use_cache initializer_range pretraining_tp
    attention_dropout bos_token_id eos_token_id pad_token_id unk_token_id name_or_path is_llama_config
    max_position_embeddings return_dict output_hidden_states output_attentions torchscript use_bfloat16 pruned_heads
    chunk_size_feed_forward is_encoder_decoder is_decoder cross_attention_hidden_size add_cross_attention
    tie_encoder_decoder id2label label2id problem_type finetuning_task task_specific_params tokenizer_class prefix
    sep_token_id decoder_start_token_id attn_implementation""".split()  # noqa: SIM905
)
"""Keys that never change the numbers of a forward."""

MATTERS = [
    "rope",
    "rotary",
    "attn",
    "attention",
    "norm",
    "scal",
    "softcap",
    "moe",
    "expert",
    "bias",
    "act",
    "window",
    "sliding",
    "multiplier",
    "logit",
    "quant",
    "head",
    "hidden",
    "layer",
    "vocab",
    "mup",
]
"""Parts of names of keys that do; an unknown key with one of them is refused, any other is only logged."""


class ConfigError(ValueError):
    """A config.json that cannot be honoured. The message names the key, its value and what is supported."""


def require(config: Mapping[str, Any], key: str) -> Any:
    """Value of a key that the family cannot do without."""
    value = config.get(key)
    if value is None:
        raise ConfigError(f"config.json lacks the required key {key!r}")
    return value


def require_size(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A positive integer, required where there is no default."""
    value = require(config, key) if default is None or config.get(key) is not None else default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"config.json: {key} is {value!r}; a positive integer is expected")
    return value


def require_number(config: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """A positive number, required where there is no default."""
    value = require(config, key) if default is None or config.get(key) is not None else default
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ConfigError(f"config.json: {key} is {value!r}; a positive number is expected")
    return float(value)


def flag(config: Mapping[str, Any], key: str) -> bool:
    """true or false; false where the key is missing."""
    value = config.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise ConfigError(f"config.json: {key} is {value!r}; true or false is expected")
    return value


def reject_unknown(config: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse keys that look as if they changed the numbers and that the family does not know.

    A value of null, false or 0 means that the thing is off.

    Raises:
        ConfigError: naming the first such key and its value.
    """
    for key, value in config.items():
        if key in known or key in HARMLESS or key.startswith("_") or value in (None, False):
            continue
        if any(part in key.lower() for part in MATTERS):
            raise ConfigError(
                f"config.json: the key {key!r} (value {value!r}) is not known for this architecture and may change "
                "its output; remove it only if you know that it does not"
            )
        log.warning("config.json: ignoring the unknown key %r", key)
