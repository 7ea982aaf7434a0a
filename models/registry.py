"""The model families that can be served or draft, by the first of `architectures` in their config.json."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfjax.models.config import ConfigError

if TYPE_CHECKING:
    from tfjax.models.family import Family

FAMILIES: Mapping[str, str] = {
    "LlamaForCausalLM": "tfjax.models.llama",
    "Lfm2ForCausalLM": "tfjax.models.lfm2",
    "Lfm2MoeForCausalLM": "tfjax.models.lfm2_moe",
}
"""Architecture -> module whose FAMILY it is. Modules are imported on demand: asking what is served needs no jax."""

DRAFTERS: Mapping[str, str] = {
    **FAMILIES,
    "TfjaxSmallDrafter": "tfjax.models.small_drafter",
    "DFlashDraftModel": "tfjax.models.dspark",
    "DSparkDraftModel": "tfjax.models.dspark",
    "DSparkSpeculator": "tfjax.models.dspark",
    "Lfm2DSparkDraftModel": "tfjax.models.dspark",
    "Lfm2DSparkForCausalLM": "tfjax.models.dspark",
    "Qwen3DSparkForCausalLM": "tfjax.models.dspark",
    "Qwen3DSparkModel": "tfjax.models.dspark",
}
"""The same, for what may draft."""


def supported() -> str:
    """The architectures, as messages name them."""
    return ", ".join(sorted(FAMILIES))


def family_for(architecture: str) -> Family[Any]:
    """Raises ConfigError naming the supported architectures."""
    if architecture not in FAMILIES:
        raise ConfigError(f"architecture {architecture!r} is not supported; supported are: {supported()}")
    return _imported(FAMILIES[architecture])


def drafter_family_for(architecture: str) -> Family[Any]:
    """Raises ConfigError naming the architectures that may draft."""
    if architecture not in DRAFTERS:
        names = ", ".join(sorted(DRAFTERS))
        raise ConfigError(f"architecture {architecture!r} cannot draft; supported drafters are: {names}")
    return _imported(DRAFTERS[architecture])


def _imported(module: str) -> Family[Any]:
    family: Family[Any] = importlib.import_module(module).FAMILY
    return family
