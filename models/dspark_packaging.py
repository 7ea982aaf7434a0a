"""The ways in which DSpark drafters are published, brought to one form.

DeepSpec's keys are flat; LiquidAI's and SpecForge's lie partly in `dflash_config`, in some exports in `dspark_config`;
inside a config of DeepSeek's they are prefixed with `dspark_`; vLLM's "speculators" puts the layers' own into
`transformer_layer_config`, counts tapped layers from the embedding, and the anchor as part of the block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfjax.models.config import ConfigError

ARCHITECTURES = frozenset(
    """Lfm2DSparkDraftModel Lfm2DSparkForCausalLM Qwen3DSparkModel Qwen3DSparkForCausalLM DSparkDraftModel
    DSparkSpeculator""".split()  # noqa: SIM905
)
"""Class names of drafters that are DSpark whatever else their config says; others need a key that says so.
`model_type` is a decoy."""

FIELDS = frozenset(
    """block_size mask_token_id num_target_layers target_layer_ids markov_rank markov_head_type enable_confidence_head
    confidence_head_with_markov confidence_temperatures draft_vocab_size target_hidden_size qk_norm_order
    vocabulary_sha256 rope_is_neox_style is_neox_style sample_from_anchor""".split()  # noqa: SIM905
)
"""Keys of the drafter's own, wherever they stand."""

OTHER_NAMES = {"noise_token_id": "mask_token_id"}
"""What DeepSeek calls a field."""


@dataclass(frozen=True, slots=True)
class Packaged:
    """A drafter's config in one form.

    Attributes:
        body: the layers' keys, as in a Qwen3's config.
        fields: those of FIELDS that are stated.
        taps: the target's layers whose output is read, from 0.
        anchor_first: the anchor's row makes the first draft, and block_size counts drafts; else it counts rows.
        interleaved: how RoPE pairs dimensions.
    """

    body: Mapping[str, Any]
    fields: Mapping[str, Any]
    taps: tuple[int, ...]
    anchor_first: bool
    interleaved: bool


def unpack(config: Mapping[str, Any]) -> Packaged:
    """Bring a config.json to one form.

    Raises:
        ConfigError: no packaging of DSpark, or keys that contradict each other.
    """
    _check_kind(config)
    speculators = config.get("speculators_model_type") is not None
    fields = _fields(config)
    body = _speculators_body(config) if speculators else config
    anchor_first = fields.get("sample_from_anchor", not speculators)
    if not isinstance(anchor_first, bool):
        raise ConfigError(f"config.json: sample_from_anchor is {anchor_first!r}; true or false is expected")
    if speculators:
        taps = tuple(layer - 1 for layer in _layer_ids(config, "aux_hidden_state_layer_ids"))
    else:
        taps = _layer_ids(fields, "target_layer_ids")
    return Packaged(body, fields, taps, anchor_first, _interleaved(config, fields))


def _check_kind(config: Mapping[str, Any]) -> None:
    architecture = next(iter(config.get("architectures") or ["none"]))
    kinds = {
        "speculators_model_type": config.get("speculators_model_type"),
        "dflash_config.projector_type": _nested(config, "dflash_config").get("projector_type"),
    }
    for key, kind in kinds.items():
        if kind not in (None, "dspark"):
            raise ConfigError(f"config.json: {key} is {kind!r}; only 'dspark' is supported")
    if architecture not in ARCHITECTURES and not any(kinds.values()):
        raise ConfigError(
            f"config.json: the architecture {architecture!r} without projector_type 'dspark' is no DSpark drafter; "
            f"recognised are {', '.join(sorted(ARCHITECTURES))}"
        )


def _nested(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = config.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"config.json: {key} is {value!r}; an object is expected")
    return value or {}


def _fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The drafter's own keys from wherever they stand.

    Raises:
        ConfigError: a key that is stated twice and differently.
    """
    found: dict[str, tuple[str, Any]] = {}
    prefixed = {key.removeprefix("dspark_"): value for key, value in config.items() if key.startswith("dspark_")}
    places = {
        "": config,
        "dspark_": prefixed,
        "dflash_config.": _nested(config, "dflash_config"),
        "dspark_config.": _nested(config, "dspark_config"),
    }
    for place, values in places.items():
        for key, value in values.items():
            name = OTHER_NAMES.get(key, key)
            if name not in FIELDS or value is None:
                continue
            if name in found and found[name][1] != value:
                raise ConfigError(
                    f"config.json: {found[name][0]} is {found[name][1]!r} and {place}{key} is {value!r}; "
                    "keep the right one"
                )
            found[name] = (place + key, value)
    return {name: value for name, (_, value) in found.items()}


def _speculators_body(config: Mapping[str, Any]) -> Mapping[str, Any]:
    body = _nested(config, "transformer_layer_config")
    if not body:
        raise ConfigError("config.json lacks the required key 'transformer_layer_config'")
    kinds = body.get("layer_types") or []
    sliding = [kind for kind in kinds if kind != "full_attention"]
    if sliding:
        raise ConfigError(
            f"config.json: transformer_layer_config.layer_types has {sliding[0]!r}; only 'full_attention' is supported"
        )
    return body


def _layer_ids(config: Mapping[str, Any], key: str) -> tuple[int, ...]:
    value = config.get(key)
    if not isinstance(value, list) or not value or not all(type(item) is int for item in value):
        raise ConfigError(f"config.json: {key} is {value!r}; a list of the target's layers is expected")
    return tuple(value)


def _interleaved(config: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """The stated key wins; LiquidAI's drafters pair neighbours where there is none, all others the two halves."""
    for key in ("rope_is_neox_style", "is_neox_style"):
        value = fields.get(key)
        if value is not None:
            if not isinstance(value, bool):
                raise ConfigError(f"config.json: {key} is {value!r}; true or false is expected")
            return not value
    return str(next(iter(config.get("architectures") or [""]))).startswith("Lfm2")
