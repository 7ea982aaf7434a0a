"""On which devices a DSpark drafter drafts."""

from __future__ import annotations

import jax

from tfjax.jax_plugins import APPLE_PLATFORMS
from tfjax.setting_values import POLICY_ALWAYS, POLICY_NEVER

REASONS = {
    "METAL": "jax-metal runs on an old jax only, in which no drafter was ever tried",
    "mps": "no drafter was tried on jax-mps or jax-metallib, whose products may lose precision silently",
    "mtl": "no drafter was tried on jax-graft, an early release",
    "metal": "no drafter was tried on metaljax, whose forwards are slow where drafts need them fast",
}
"""Platforms where drafting is not qualified, and why."""

UNKNOWN_APPLE = "the plugin of this Apple device is not known"


def why_not(policy: str, device: jax.Device) -> str | None:
    """Why a DSpark drafter stands aside on this device; None where it drafts."""
    if policy == POLICY_ALWAYS:
        return None
    if policy == POLICY_NEVER:
        return "--drafter-policy never"
    if device.platform in REASONS:
        return REASONS[device.platform]
    is_apple = device.platform in APPLE_PLATFORMS or "apple" in f"{device.platform} {device.device_kind}".lower()
    return UNKNOWN_APPLE if is_apple else None
