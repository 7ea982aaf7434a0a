from __future__ import annotations

import pytest

from tfjax.models.config import ConfigError
from tfjax.models.registry import FAMILIES, family_for


def test_families_are_found_by_their_architecture() -> None:
    for name, family in FAMILIES.items():
        assert family_for(name) is family


def test_an_unknown_architecture_is_refused_with_what_is_supported() -> None:
    with pytest.raises(ConfigError, match=r"'MambaForCausalLM'.*LlamaForCausalLM"):
        family_for("MambaForCausalLM")
