from __future__ import annotations

import subprocess
import sys

import pytest

from tfjax.models.config import ConfigError
from tfjax.models.registry import FAMILIES, family_for, supported


@pytest.mark.parametrize("architecture", FAMILIES)
def test_a_family_declares_the_architecture_that_it_is_found_by(architecture: str) -> None:
    assert family_for(architecture).architecture == architecture


def test_an_unknown_architecture_is_refused_with_what_is_supported() -> None:
    with pytest.raises(ConfigError, match=r"'MambaForCausalLM'.*LlamaForCausalLM"):
        family_for("MambaForCausalLM")
    assert "LlamaForCausalLM" in supported()


def test_asking_what_is_served_imports_no_jax() -> None:
    code = (
        "import sys, tfjax.models.registry, tfjax.models.family\nassert not {'jax', 'flax', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
