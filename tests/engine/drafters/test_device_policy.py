from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tfjax.engine.drafters.device_policy import REASONS, UNKNOWN_APPLE, why_not
from tfjax.jax_plugins import APPLE_PLATFORMS
from tfjax.setting_values import POLICY_ALWAYS, POLICY_AUTO, POLICY_NEVER


def device(platform: str, kind: str = "device") -> Any:
    return SimpleNamespace(platform=platform, device_kind=kind)


def test_every_apple_platform_has_its_reason() -> None:
    assert set(REASONS) == APPLE_PLATFORMS
    assert "jax-metal" in REASONS["METAL"]
    assert all(why_not(POLICY_AUTO, device(platform)) == reason for platform, reason in REASONS.items())


@pytest.mark.parametrize(("platform", "kind"), [("apple-gpu", "M7"), ("agx", "Apple M7 Max")])
def test_apple_plugins_that_nobody_knows_stand_aside(platform: str, kind: str) -> None:
    assert why_not(POLICY_AUTO, device(platform, kind)) == UNKNOWN_APPLE


@pytest.mark.parametrize(("platform", "kind"), [("cpu", "cpu"), ("gpu", "NVIDIA H200"), ("tpu", "TPU v5p")])
def test_others_draft(platform: str, kind: str) -> None:
    assert why_not(POLICY_AUTO, device(platform, kind)) is None


@pytest.mark.parametrize("platform", ["METAL", "cpu"])
def test_a_user_decides(platform: str) -> None:
    assert why_not(POLICY_ALWAYS, device(platform)) is None
    assert why_not(POLICY_NEVER, device(platform)) == "--drafter-policy never"
