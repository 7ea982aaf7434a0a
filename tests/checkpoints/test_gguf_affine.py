"""Blocks of GGUF in the affine layout have the values that the file's own definition gives."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from tfjax.checkpoints.affine import dequantize
from tfjax.checkpoints.gguf_affine import affine_of

KINDS = {"Q4_1": gguf.GGMLQuantizationType.Q4_1, "Q8_0": gguf.GGMLQuantizationType.Q8_0}


def rows_of(kind: str, *shape: int) -> NDArray[np.uint8]:
    """Random rows as a file holds them."""
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    values *= 2.0 ** np.random.default_rng(1).integers(-8, 9, (*shape[:-1], 1))
    quantized: NDArray[np.uint8] = gguf.quants.quantize(values, KINDS[kind])
    return quantized


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_the_file(kind: str) -> None:
    rows = rows_of(kind, 3, 40, 96)
    packed, form = affine_of(kind, rows)
    assert (packed.scales.dtype, packed.scales.shape, form.group_size) == (np.float16, (3, 40, 3), 32)
    wanted = gguf.quants.dequantize(rows, KINDS[kind])
    assert np.array_equal(dequantize(packed, form), wanted)


def test_what_has_no_affine_form_is_refused() -> None:
    with pytest.raises(ValueError, match="Q4_1 and Q8_0"):
        affine_of("Q6_K", np.zeros((2, 210), np.uint8))
    with pytest.raises(ValueError, match="no whole blocks of 20 bytes"):
        affine_of("Q4_1", np.zeros((2, 30), np.uint8))


def test_a_bias_that_overflows_is_refused() -> None:
    rows = np.zeros((1, 34), np.uint8)
    rows[0, :2] = np.frombuffer(np.float16(600).tobytes(), np.uint8)
    with pytest.raises(ValueError, match="expand the tensor"):
        affine_of("Q8_0", rows)
