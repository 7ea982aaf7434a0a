"""What a tensor's stored type says of packing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfjax.checkpoints import TensorInfo


@pytest.mark.parametrize(
    ("stored", "packed_type", "quantized"),
    [
        ("AFFINE6", "AFFINE6", True),
        ("Q4_0", "AFFINE4", True),
        ("Q4_1", "AFFINE4", True),
        ("Q8_0", "AFFINE8", True),
        ("Q4_K", "", True),
        ("Q6_K", "", True),
        ("BF16", "", False),
        ("F32", "", False),
    ],
)
def test_types_that_can_stay_packed(stored: str, packed_type: str, quantized: bool) -> None:
    info = TensorInfo((64, 64), stored, Path("model.gguf"), 64)
    assert (info.packed_type, info.quantized) == (packed_type, quantized)
