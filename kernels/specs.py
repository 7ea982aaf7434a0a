"""Sizes of published models, by name: what tests, the kernel contract and benchmarks run alike."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spec:
    """One model's sizes.

    Attributes:
        normed: queries and keys are normed; the DSpark drafter norms after rotating.
        features: target layers that a drafter reads.
        taps: inputs of a short convolution; 0 where no layer has one.
        experts, picked, expert_inner: of the layers whose rows go through a few experts each.
    """

    name: str
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    normed: bool = False
    norm_after: bool = False
    features: int = 0
    taps: int = 0
    experts: int = 0
    picked: int = 0
    expert_inner: int = 0

    @property
    def qkv(self) -> int:
        """Columns of the product that makes queries, keys and values."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """(inner, columns) of each product that is summed in parts."""
        found = {
            "qkv": (self.hidden, self.qkv),
            "out": (self.heads * self.head_dim, self.hidden),
            "down": (self.inner, self.hidden),
            "head": (self.hidden, self.vocab),
        }
        if self.taps:
            found["conv_in"] = (self.hidden, 3 * self.hidden)
            found["conv_out"] = (self.hidden, self.hidden)
        if self.features:
            found["features"] = (self.features * self.hidden, self.hidden)
        return found


SPECS = {
    spec.name: spec
    for spec in (
        Spec("Llama-3-8B", 4096, 14336, 32, 8, 128, 128256),
        Spec("SmolLM2-135M", 576, 1536, 9, 3, 64, 49152),
        Spec("LFM2.5-1.2B", 2048, 8192, 32, 8, 64, 65536, normed=True, taps=3),
        Spec("LFM2.5-2.6B", 2048, 10752, 32, 8, 64, 128000, normed=True, taps=3),
        # The dense layers' width follows from the count of parameters; the other sizes are published.
        Spec(
            "LFM2.5-24B-A2B",
            2048,
            11520,
            32,
            8,
            64,
            128000,
            normed=True,
            taps=3,
            experts=64,
            picked=4,
            expert_inner=1536,
        ),
        Spec("lfm2-moe-code", 256, 1024, 4, 2, 64, 6144, normed=True, taps=3, experts=8, picked=2, expert_inner=64),
        Spec("DSpark drafter", 2048, 6144, 32, 8, 64, 128000, normed=True, norm_after=True, features=5),
        Spec("Qwen3-4B", 2560, 9728, 32, 8, 128, 151936, normed=True),
        Spec("Qwen3-8B", 4096, 12288, 32, 8, 128, 151936, normed=True),
    )
}

TINY = Spec("tiny", 256, 128, 4, 2, 64, 256, normed=True, taps=3, experts=4, picked=2, expert_inner=128)
"""No model: small enough for the interpreter."""
