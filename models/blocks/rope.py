"""Frequencies of rotary position embedding, with the published ways of stretching them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfjax.models.config import ConfigError, reject_unknown


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3.1's scaling: long waves are slowed by `factor`, short ones kept, those between blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_positions: int

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
    def from_hf(cls, config: Mapping[str, Any]) -> RopeConfig:
        """Read both published forms: `rope_theta` with `rope_scaling`, and the nested `rope_parameters`.

        Raises:
            ConfigError: for a rope type other than default, linear and llama3, and for keys that no known type has.
        """
        nested = config.get("rope_parameters") or config.get("rope_scaling") or {}
        theta = nested.get("rope_theta", config.get("rope_theta"))
        if theta is None:
            raise ConfigError("config.json has no rope_theta, neither at the top nor under rope_parameters")
        return cls(float(theta), _scaling(nested, config))

    def inverse_frequency(self, head_dim: int) -> np.ndarray:
        """Radians per position of each rotated pair. Shape: float32 [head_dim / 2]."""
        exponent = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
        frequency = (1.0 / np.float32(self.theta) ** exponent).astype(np.float32)
        return frequency if self.scaling is None else self.scaling.apply(frequency).astype(np.float32)


def _scaling(nested: Mapping[str, Any], config: Mapping[str, Any]) -> Llama3Scaling | LinearScaling | None:
    kind = nested.get("rope_type", nested.get("type", "default"))
    try:
        if kind in (None, "default"):
            reject_unknown(nested, {"rope_type", "type", "rope_theta"}, "rope_parameters")
            return None
        if kind == "linear":
            reject_unknown(nested, {"rope_type", "type", "rope_theta", "factor"}, "rope_parameters")
            return LinearScaling(float(nested["factor"]))
        if kind == "llama3":
            return Llama3Scaling(
                float(nested["factor"]),
                float(nested["low_freq_factor"]),
                float(nested["high_freq_factor"]),
                int(nested["original_max_position_embeddings"]),
            )
    except KeyError as missing:
        raise ConfigError(f"rope type {kind!r} needs the key {missing} in config.json") from None
    raise ConfigError(f"rope type {kind!r} is not supported; supported are default, linear and llama3")
