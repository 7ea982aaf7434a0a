"""Configs of published LFM2s, all of their layers; nothing of such a size is ever allocated."""

from __future__ import annotations

from dataclasses import replace

from tests.models.tiny_lfm2 import MOE
from tfjax.kernels.specs import SPECS
from tfjax.models.blocks.experts import ExpertsConfig
from tfjax.models.lfm2_config import Lfm2Config


def published(name: str, layers: str, dense_layers: int | None = None) -> Lfm2Config:
    """Layers as letters: C convolves, A attends. All of them are dense where `dense_layers` is None."""
    spec = SPECS[name]
    experts = None
    if spec.experts:
        experts = ExpertsConfig(spec.experts, spec.picked, spec.expert_inner, biased=True, normalised=True, scale=1.0)
    return replace(
        MOE, vocab=spec.vocab, hidden=spec.hidden, inner=spec.inner, heads=spec.heads, kv_heads=spec.kv_heads,
        attends=tuple(layer == "A" for layer in layers), taps=spec.taps, experts=experts,
        dense_layers=len(layers) if dense_layers is None else dense_layers,
    )  # fmt: skip


LFM2_1B = published("LFM2.5-1.2B", "CCA" * 3 + "CA" * 3 + "C")
LFM2_24B = published("LFM2.5-24B-A2B", "CCAC" * 10, 2)
LFM2_CODE = published("lfm2-moe-code", "CCACCACCAC", 1)
