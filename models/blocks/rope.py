"""Frequencies of rotary position embedding, with the published ways of stretching them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfjax.models.config import ConfigError, require_number

_KEYS = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
"""Supported rope types and the numbers that each needs."""

DEFAULT_THETA = 10_000.0
"""What transformers takes for a Llama whose config names none, as those of the first releases."""

_COMMON = ("rope_type", "type", "rope_theta")


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3.1's scaling: long waves are slowed by `factor`, short ones kept, those between blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_positions: float

    def apply(self, frequency: np.ndarray) -> np.ndarray:
        wavelength = 2 * math.pi / frequency
        turns = self.original_positions / wavelength
        smooth = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        blended = (1 - smooth) * frequency / self.factor + smooth * frequency
        slowed = np.where(turns < self.low_freq_factor, frequency / self.factor, blended)
        return np.where(turns > self.high_freq_factor, frequency, slowed)


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Every wave slowed by `factor`."""

    factor: float

    def apply(self, frequency: np.ndarray) -> np.ndarray:
        return frequency / self.factor


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Base and scaling of the rotation. `scaling` is None for the plain form."""

    theta: float
    scaling: Llama3Scaling | LinearScaling | None = None

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], default_theta: float = DEFAULT_THETA) -> RopeConfig:
        """Read both published forms: `rope_theta` with `rope_scaling`, and the nested `rope_parameters`.

        Raises:
            ConfigError: for a rope type other than default, linear and llama3, and for keys that the type has not.
        """
        nested = _nested(config)
        theta = require_number(nested if "rope_theta" in nested else config, "rope_theta", default_theta)
        return cls(theta, _scaling(nested))

    def inverse_frequency(self, head_dim: int) -> np.ndarray:
        """Radians per position of each rotated pair. Shape: float32 [head_dim / 2]."""
        exponent = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
        frequency = (1.0 / np.float32(self.theta) ** exponent).astype(np.float32)
        return frequency if self.scaling is None else self.scaling.apply(frequency).astype(np.float32)


def _nested(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What `rope_parameters` or `rope_scaling` holds, whichever is there."""
    found = {key: config[key] for key in ("rope_parameters", "rope_scaling") if config.get(key)}
    for key, value in found.items():
        if not isinstance(value, Mapping):
            raise ConfigError(f"config.json: {key} is {value!r}; an object is expected")
    if len(found) == 2 and found["rope_parameters"] != found["rope_scaling"]:
        raise ConfigError(
            f"config.json: rope_parameters {found['rope_parameters']!r} and rope_scaling {found['rope_scaling']!r} "
            "differ; keep the right one"
        )
    return next(iter(found.values()), {})


def _scaling(nested: Mapping[str, Any]) -> Llama3Scaling | LinearScaling | None:
    kind = nested.get("rope_type", nested.get("type")) or "default"
    if not isinstance(kind, str) or kind not in _KEYS:
        raise ConfigError(f"config.json: rope type {kind!r} is not supported; supported are {', '.join(_KEYS)}")
    for key, value in nested.items():
        if value is not None and key not in _KEYS[kind] and key not in _COMMON:
            raise ConfigError(f"config.json: the rope type {kind!r} has no key {key!r} (value {value!r})")
    numbers = [require_number(nested, key) for key in _KEYS[kind]]
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(*numbers)
    scaling = Llama3Scaling(*numbers)
    if scaling.high_freq_factor <= scaling.low_freq_factor:
        raise ConfigError(
            f"config.json: high_freq_factor {scaling.high_freq_factor} must be above "
            f"low_freq_factor {scaling.low_freq_factor}"
        )
    return scaling
