from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tfjax.models.blocks.rope import LinearScaling, Llama3Scaling, RopeConfig
from tfjax.models.config import ConfigError

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def plain(theta: float, size: int) -> np.ndarray:
    return np.array([theta ** (-2 * i / size) for i in range(size // 2)])


def test_plain_frequencies() -> None:
    np.testing.assert_allclose(RopeConfig(1e5).inverse_frequency(64), plain(1e5, 64), rtol=1e-6)


def test_linear_slows_every_wave() -> None:
    found = RopeConfig(1e4, LinearScaling(4.0)).inverse_frequency(16)
    np.testing.assert_allclose(found, plain(1e4, 16) / 4, rtol=1e-6)


def test_llama3_keeps_short_waves_and_slows_long_ones() -> None:
    """Wave by wave, as the published rule says it."""
    found = RopeConfig(5e5, Llama3Scaling(8.0, 1.0, 4.0, 8192)).inverse_frequency(128)
    kinds = set()
    for value, frequency in zip(found, plain(5e5, 128), strict=True):
        wave = 2 * math.pi / frequency
        if wave < 8192 / 4:
            wanted, kind = frequency, "short"
        elif wave > 8192 / 1:
            wanted, kind = frequency / 8, "long"
        else:
            smooth = (8192 / wave - 1) / (4 - 1)
            wanted, kind = (1 - smooth) * frequency / 8 + smooth * frequency, "between"
        kinds.add(kind)
        assert value == pytest.approx(wanted, rel=1e-5)
    assert kinds == {"short", "long", "between"}


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_both_published_forms_are_read(key: str) -> None:
    wanted = RopeConfig(5e5, Llama3Scaling(8.0, 1.0, 4.0, 8192))
    assert RopeConfig.from_hf({"rope_theta": 5e5, key: LLAMA3}) == wanted
    assert RopeConfig.from_hf({key: LLAMA3 | {"rope_theta": 5e5}}) == wanted


@pytest.mark.parametrize("nested", [None, {}, {"rope_type": "default"}, {"type": "default"}, {"rope_type": None}])
def test_no_scaling(nested: Any) -> None:
    assert RopeConfig.from_hf({"rope_theta": 3.0, "rope_scaling": nested}) == RopeConfig(3.0)


def test_the_older_name_of_the_type_is_read() -> None:
    scaling = {"type": "linear", "factor": 2}
    assert RopeConfig.from_hf({"rope_theta": 3.0, "rope_scaling": scaling}).scaling == LinearScaling(2.0)


REFUSED = {
    "unknown type": ({"rope_type": "yarn", "factor": 4.0}, ["yarn", "llama3"]),
    "type of another kind": ({"rope_type": ["linear"]}, ["linear"]),
    "missing factor": ({"rope_type": "linear"}, ["factor"]),
    "negative factor": ({"rope_type": "linear", "factor": -2.0}, ["factor", "-2.0"]),
    "factor as text": ({"rope_type": "linear", "factor": "4"}, ["factor", "'4'"]),
    "missing llama3 key": ({k: v for k, v in LLAMA3.items() if k != "low_freq_factor"}, ["low_freq_factor"]),
    "key of another type": ({"rope_type": "default", "factor": 4.0}, ["default", "factor", "4.0"]),
    "unknown llama3 key": (LLAMA3 | {"mscale": 0.7}, ["llama3", "mscale", "0.7"]),
    "empty band": (LLAMA3 | {"high_freq_factor": 1.0}, ["high_freq_factor", "1.0", "low_freq_factor"]),
    "no object": ("linear", ["rope_scaling", "linear"]),
    "theta": ({"rope_type": "default", "rope_theta": 0}, ["rope_theta", "0"]),
}


@pytest.mark.parametrize(("nested", "named"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_honoured_is_named(nested: Any, named: list[str]) -> None:
    with pytest.raises(ConfigError) as refusal:
        RopeConfig.from_hf({"rope_theta": 1e4, "rope_scaling": nested})
    for word in named:
        assert word in str(refusal.value)


def test_two_forms_that_differ_are_refused() -> None:
    both = {"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2.0}}
    with pytest.raises(ConfigError, match="differ"):
        RopeConfig.from_hf(both | {"rope_parameters": {"rope_type": "default"}})
    same = both | {"rope_parameters": both["rope_scaling"]}
    assert RopeConfig.from_hf(same).scaling == LinearScaling(2.0)
