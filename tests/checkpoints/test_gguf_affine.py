"""Blocks of GGUF in the affine layout have the values that the file's own definition gives."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from tfjax.checkpoints.affine import dequantize
from tfjax.checkpoints.gguf_affine import FORMS, affine_of

KINDS = {kind: gguf.GGMLQuantizationType[kind] for kind in FORMS}


def rows_of(kind: str, *shape: int) -> NDArray[np.uint8]:
    """Random rows as a file holds them."""
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    values *= 2.0 ** np.random.default_rng(1).integers(-8, 9, (*shape[:-1], 1))
    quantized: NDArray[np.uint8] = gguf.quants.quantize(values, KINDS[kind])
    return quantized


def with_scale(kind: str, scale: float) -> NDArray[np.uint8]:
    """One row of one block that has every code, the signed ones' zero among them, and no minimum."""
    block = np.zeros((1, gguf.GGML_QUANT_SIZES[KINDS[kind]][1]), np.uint8)
    count = 32 * FORMS[kind].bits // 8
    block[0, -count:] = (np.arange(count) * 17) % 256 if FORMS[kind].bits == 4 else np.arange(-16, 16).astype(np.uint8)
    block[0, :2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    return block


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_the_file(kind: str) -> None:
    rows = rows_of(kind, 3, 40, 96)
    packed, form = affine_of(kind, rows)
    assert (packed.scales.dtype, packed.biases.dtype, packed.scales.shape) == (np.float16, np.float16, (3, 40, 3))
    assert form.group_size == 32
    wanted = gguf.quants.dequantize(rows, KINDS[kind])
    assert np.array_equal(dequantize(packed, form), wanted)


@pytest.mark.parametrize("scale", [5.96e-8, -5.96e-8, 3.3e-6, 0.7, -511.0])
@pytest.mark.parametrize("kind", KINDS)
def test_every_bit_is_the_same_but_the_sign_of_a_zero(kind: str, scale: float) -> None:
    """From the least scale that float16 has to the largest whose offsets it has."""
    rows = with_scale(kind, scale)
    wanted = gguf.quants.dequantize(rows, KINDS[kind])
    values = dequantize(*affine_of(kind, rows))
    assert len(np.unique(wanted)) > 15
    # To add a zero makes that of a negative scale a positive one.
    assert np.array_equal(values.view(np.uint32), (wanted + np.float32(0)).view(np.uint32))


def test_what_has_no_affine_form_is_refused() -> None:
    with pytest.raises(ValueError, match="Q4_0, Q4_1, Q8_0"):
        affine_of("Q6_K", np.zeros((2, 210), np.uint8))
    with pytest.raises(ValueError, match="no whole blocks of 20 bytes"):
        affine_of("Q4_1", np.zeros((2, 30), np.uint8))


@pytest.mark.parametrize(("kind", "most", "words"), [("Q8_0", 511.75, "128 overflow"), ("Q4_0", 8188.0, "8 overflow")])
def test_a_bias_that_overflows_is_refused(kind: str, most: float, words: str) -> None:
    affine_of(kind, with_scale(kind, most))
    with pytest.raises(ValueError, match=words):
        affine_of(kind, with_scale(kind, np.nextafter(np.float16(most), np.float16(np.inf))))


def test_a_minimum_has_no_offset_that_could_overflow() -> None:
    assert affine_of("Q4_1", with_scale("Q4_1", 65504.0))[0].biases.max() == 0
