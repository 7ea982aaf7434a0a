from __future__ import annotations

from typing import Any

import pytest

from tfjax.models.config import ConfigError, flag, reject_unknown, require, require_number, require_size


def test_require_names_the_missing_key() -> None:
    assert require({"a": 0}, "a") == 0
    for config in ({}, {"a": None}):
        with pytest.raises(ConfigError, match="'a'"):
            require(config, "a")


@pytest.mark.parametrize("value", [0, -3, 1.5, "7", True, [1]])
def test_a_size_is_a_positive_integer(value: Any) -> None:
    assert require_size({"a": 7}, "a") == 7
    with pytest.raises(ConfigError) as refusal:
        require_size({"a": value}, "a")
    assert "a is" in str(refusal.value)
    assert repr(value) in str(refusal.value)


def test_a_size_may_have_a_default() -> None:
    assert require_size({}, "a", default=5) == 5
    assert require_size({"a": None}, "a", default=5) == 5
    assert require_size({"a": 7}, "a", default=5) == 7
    with pytest.raises(ConfigError):
        require_size({"a": 0}, "a", default=5)


@pytest.mark.parametrize("value", [0, -1.0, float("inf"), float("nan"), "1e-5", True, {}])
def test_a_number_is_positive_and_finite(value: Any) -> None:
    assert require_number({"a": 3}, "a") == 3.0
    with pytest.raises(ConfigError, match="a is"):
        require_number({"a": value}, "a")


@pytest.mark.parametrize("value", [0, 1, "true", "", []])
def test_a_flag_is_true_or_false(value: Any) -> None:
    assert flag({"a": True}, "a")
    assert not flag({"a": False}, "a")
    assert not flag({}, "a")
    with pytest.raises(ConfigError, match="a is"):
        flag({"a": value}, "a")


def test_unknown_keys_that_matter_are_refused() -> None:
    reject_unknown({"known_norm": 3, "model_type": "x", "_private_norm": 1}, {"known_norm"})
    with pytest.raises(ConfigError, match=r"clever_norm.*'rms'"):
        reject_unknown({"clever_norm": "rms"}, {"known_norm"})


@pytest.mark.parametrize("value", [None, False, 0, 0.0])
def test_unknown_keys_that_are_off_pass(value: Any) -> None:
    reject_unknown({"clever_norm": value}, set())
