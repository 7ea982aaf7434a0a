"""How far a model's q_norm and k_norm weights let the order of norm and rotation show.

RoPE rotates pairs of a head's dimensions and keeps their length, so an RMSNorm divides by the same number before and
after it. What does not commute with the rotation is the norm's weight, and only where the two weights of a pair differ.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NORM = re.compile(r"(?:.*\.)?layers\.(\d+)\.self_attn\.(q|k)_(?:norm|layernorm)\.weight")
"""Names of the norms in Qwen3's and LFM2's checkpoints and in those of their drafters."""


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """The difference of one layer's norms.

    Attributes:
        q, k: as `pair_difference` measures it.
    """

    layer: int
    q: float
    k: float


def pair_difference(weight: NDArray[Any], *, interleaved: bool) -> float:
    """By how much the order changes a head, relative to its length: a root mean square over inputs and angles.

    For a pair with weights a and b and the rotation R by t, R diag(a, b) - diag(a, b) R has entries of size
    |a - b| |sin t|. For inputs that favour no direction and angles that favour none, the expected square is (a - b)^2,
    and that of the head itself a^2 + b^2. So 0 means that the order cannot show, 1 that one weight of each pair is 0.

    Args:
        weight: of the norm. Shape: [H], H even.
        interleaved: pairs are (2i, 2i + 1), else (i, i + H/2).

    Raises:
        ValueError: a weight that has no pairs, or none that is not 0.
    """
    values = np.asarray(weight, np.float64)
    if values.ndim != 1 or values.size % 2 or not values.any():
        raise ValueError(f"a norm's weight of shape {values.shape} has no pairs; an even number of values is expected")
    first, second = (values[0::2], values[1::2]) if interleaved else np.split(values, 2)
    return math.sqrt(np.sum((first - second) ** 2) / np.sum(values**2))


def layer_differences(tensors: Mapping[str, NDArray[Any]], *, interleaved: bool) -> list[LayerDifference]:
    """The differences of each layer that norms queries and keys, in order.

    Args:
        tensors: of a checkpoint, by name; all but the norms are ignored.

    Raises:
        ValueError: a layer with one of the two norms only.
    """
    found: dict[int, dict[str, float]] = {}
    for name, weight in tensors.items():
        match = NORM.fullmatch(name)
        if match:
            found.setdefault(int(match[1]), {})[match[2]] = pair_difference(weight, interleaved=interleaved)
    for layer, parts in found.items():
        if len(parts) < 2:
            raise ValueError(f"layer {layer} has a norm of {next(iter(parts))} only; norms of q and k are expected")
    return [LayerDifference(layer, found[layer]["q"], found[layer]["k"]) for layer in sorted(found)]


def total_difference(layers: list[LayerDifference]) -> float:
    """The root mean square over all layers' norms of q and k; 0 without any."""
    squares = [value**2 for layer in layers for value in (layer.q, layer.k)]
    return math.sqrt(sum(squares) / len(squares)) if squares else 0.0
