"""The model families that can be served, by the first of `architectures` in their config.json."""

from __future__ import annotations

from typing import Any

from tfjax.models import llama
from tfjax.models.config import ConfigError
from tfjax.models.family import Family

FAMILIES: dict[str, Family[Any]] = {family.architecture: family for family in (llama.FAMILY,)}


def family_for(architecture: str) -> Family[Any]:
    """Raises ConfigError naming the supported architectures."""
    try:
        return FAMILIES[architecture]
    except KeyError:
        supported = ", ".join(sorted(FAMILIES))
        raise ConfigError(f"architecture {architecture!r} is not supported; supported are: {supported}") from None
