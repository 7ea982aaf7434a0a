"""Scaling of RoPE in GGUF metadata, in the form of config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints.errors import CheckpointError
from tfjax.checkpoints.gguf_metadata import Metadata

ROPE_KEYS = frozenset(
    {
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scale_linear",
        "rope.scaling.attn_factor",
        "rope.scaling.factor",
        "rope.scaling.finetuned",
        "rope.scaling.original_context_length",
        "rope.scaling.type",
    }
)
# Llama 3.1's published scaling; a GGUF file holds only the divisors that follow from it.
_LLAMA3_LOW, _LLAMA3_HIGH, _LLAMA3_CONTEXT = 1.0, 4.0, 8192


def rope_scaling(meta: Metadata, theta: float, head_dim: int, divisors: NDArray[Any] | None) -> dict[str, Any] | None:
    """rope_scaling as config.json has it; None where positions are not scaled."""
    kind = meta.optional("rope.scaling.type") or "none"
    factor = meta.number("rope.scaling.factor", meta.number("rope.scale_linear", 1.0))
    if meta.number("rope.scaling.attn_factor", 1.0) != 1.0:
        found = meta.optional("rope.scaling.attn_factor")
        raise meta.error("attention scaling is not supported", "rope.scaling.attn_factor", found, "1.0")
    if divisors is not None and not np.all(divisors == 1.0):
        return _llama3_scaling(meta, theta, head_dim, divisors)
    if kind == "linear" or (kind == "none" and meta.optional("rope.scale_linear") is not None and factor != 1.0):
        return {"rope_type": "linear", "factor": factor}
    if kind == "none":
        return None
    return {
        "rope_type": str(kind),
        "factor": factor,
        "original_max_position_embeddings": meta.count("rope.scaling.original_context_length", 1),
    }


def _llama3_scaling(meta: Metadata, theta: float, head_dim: int, divisors: NDArray[Any]) -> dict[str, Any]:
    """Recovers Llama 3's rule from its divisors, and refuses divisors that follow from another rule."""
    scaling = {
        "rope_type": "llama3",
        "factor": float(divisors.max()),
        "low_freq_factor": _LLAMA3_LOW,
        "high_freq_factor": _LLAMA3_HIGH,
        "original_max_position_embeddings": meta.count("rope.scaling.original_context_length", _LLAMA3_CONTEXT),
    }
    expected = llama3_divisors(theta, head_dim, scaling)
    if divisors.shape != expected.shape or not np.allclose(divisors, expected, rtol=1e-4):
        raise CheckpointError(
            meta.path,
            "RoPE divisors that do not follow Llama 3's rule",
            tensor="rope_freqs.weight",
            found=np.array2string(divisors.ravel(), precision=4, threshold=8),
            expected=np.array2string(expected, precision=4, threshold=8),
            remedy="Use the model's safetensors directory.",
        )
    return scaling


def llama3_divisors(theta: float, head_dim: int, scaling: Mapping[str, Any]) -> NDArray[np.float64]:
    """What Llama 3's scaling divides each inverse frequency by, [head_dim / 2].

    Source: Llama 3.1's published rope_scaling. Wavelengths above original / low are divided by `factor`, those below
    original / high by 1, those between by a blend.
    """
    frequencies = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    wavelengths = 2.0 * np.pi / frequencies
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    original, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    blend = np.clip((original / wavelengths - low) / (high - low), 0.0, 1.0)
    return np.asarray(1.0 / ((1.0 - blend) / factor + blend))
