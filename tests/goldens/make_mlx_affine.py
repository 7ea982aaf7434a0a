"""Makes mlx_affine.json: small weights as MLX quantizes them, and what it makes of them again.

Run where MLX is installed (`pip install "mlx[cpu]"`):  python tests/goldens/make_mlx_affine.py
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
import numpy as np

HERE = Path(__file__).parent
BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZE = 32


def weight() -> np.ndarray:
    """Values of many sizes: a row of both signs, one of positive numbers, one of equal ones and zeros."""
    draws = np.random.default_rng(11)
    values = draws.standard_normal((3, 2 * GROUP_SIZE)) * np.exp(draws.standard_normal((3, 2 * GROUP_SIZE)))
    values[1] = abs(values[1])
    values[2, :GROUP_SIZE], values[2, GROUP_SIZE:] = 0.7, 0
    return values.astype(np.float32).round(4)


def quantized(values: np.ndarray, bits: int) -> dict[str, object]:
    """Words, scales, biases and dequantized values, all in float32 or uint32."""
    words, scales, biases = mx.quantize(mx.array(values), group_size=GROUP_SIZE, bits=bits)
    again = mx.dequantize(words, scales, biases, group_size=GROUP_SIZE, bits=bits)
    parts = {"words": words, "scales": scales, "biases": biases, "values": again}
    return {name: np.array(part).tolist() for name, part in parts.items()}


def main() -> None:
    """Writes the file."""
    values = weight()
    golden = {
        "mlx": version("mlx"),
        "group_size": GROUP_SIZE,
        "weight": values.tolist(),
        "bits": {str(bits): quantized(values, bits) for bits in BITS},
    }
    (HERE / "mlx_affine.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
