"""The blocks of the goals in the order in which they run, the most wanted first."""

from __future__ import annotations

from collections.abc import Mapping

EXPECTED_S: Mapping[str, float] = {
    "windows": 75.0,
    "long context": 45.0,
    "LFM2.5-1.2B": 75.0,
    "LFM2.5-24B-A2B": 110.0,
    "small lanes": 100.0,
    "small http": 60.0,
    "prefill": 115.0,
    "tax": 75.0,
    "peer Llama-3-8B": 120.0,
    "peer SmolLM2-135M": 90.0,
    "compiling": 200.0,
}
"""Seconds that each takes on an H200, at most: start, weights and compiling included."""
