"""Packed weights equal their definition, written out bit by bit; quantized ones keep one extreme of each group."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import DTypeLike, NDArray

from tfjax.checkpoints.affine import (
    BITS,
    GROUP_SIZES,
    AffineForm,
    Packed,
    check_shapes,
    dequantize,
    pack,
    quantize,
    unpack,
)

GOLDENS = Path(__file__).parent.parent / "goldens"
FORMS = [AffineForm(bits, group) for bits in BITS for group in GROUP_SIZES]
each_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.bits}bits-{form.group_size}")


def code_at(words: NDArray[np.uint32], bits: int, column: int) -> int:
    """The definition: bit b of code c is bit c * bits + b of the row, counted from the lowest bit of the first word."""
    code = 0
    for bit in range(bits):
        word, place = divmod(column * bits + bit, 32)
        code |= (int(words[word]) >> place & 1) << bit
    return code


def slow_value(packed: Packed, form: AffineForm, row: int, column: int) -> np.float32:
    group = column // form.group_size
    scale, bias = (np.float32(part[row, group]) for part in (packed.scales, packed.biases))
    return np.float32(np.float32(scale * np.float32(code_at(packed.words[row], form.bits, column))) + bias)


def slow_quantize(group: NDArray[np.float32], bits: int) -> tuple[list[int], np.float32, np.float32]:
    """The quantizer for one group, number by number."""
    one = np.float32
    least, most = min(group), max(one(0), *group)
    scale = max(one(one(most - least) / one(2**bits - 1)), one(1e-7))
    if abs(least) > abs(most):
        edge = least
    else:
        scale, edge = -scale, most
    steps, bias = np.rint(one(edge / scale)), one(0)
    if steps != 0:
        scale, bias = one(edge / steps), edge
    codes = [int(min(max(np.rint(one(one(value - bias) / scale)), 0), 2**bits - 1)) for value in group]
    return codes, scale, bias


def uneven(rows: int, columns: int, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Values of many sizes; a row each of positive, negative, equal and zero ones."""
    draws = np.random.default_rng(5)
    values = draws.standard_normal((rows, columns)) * np.exp(draws.standard_normal((rows, columns)))
    values[0], values[1], values[2], values[3] = abs(values[0]), -abs(values[1]), 0.7, 0
    return values.astype(dtype)


@each_form
def test_unpacked_codes_equal_the_definition(form: AffineForm) -> None:
    words = np.random.default_rng(form.bits).integers(0, 1 << 32, (2, 128 * form.bits // 32), dtype=np.uint32)
    wanted = [[code_at(row, form.bits, column) for column in range(128)] for row in words]
    np.testing.assert_array_equal(unpack(words, form.bits), wanted)


@pytest.mark.parametrize("bits", BITS)
def test_packing_is_the_way_back(bits: int) -> None:
    codes = np.random.default_rng(bits).integers(0, 1 << bits, (3, 2, 96), dtype=np.uint8)
    words = pack(codes, bits)
    assert (words.dtype, words.shape) == (np.uint32, (3, 2, 3 * bits))
    np.testing.assert_array_equal(unpack(words, bits), codes)


@pytest.mark.parametrize(
    ("bits", "codes", "words"),
    [
        (4, range(8), [0x76543210]),
        (8, range(1, 5), [0x04030201]),
        (2, [3, 2, 1, 0] * 4, [0x1B1B1B1B]),
        # 8 codes of 3 bits are 3 bytes: 7 | 1 << 3 | 2 << 6 ... 5 << 21 = 0xAA888F
        (3, [7, 1, 2, 4, 0, 5, 2, 5] * 4, [0x8FAA888F, 0x888FAA88, 0xAA888FAA]),
    ],
)
def test_worked_words(bits: int, codes: Any, words: list[int]) -> None:
    given = np.array(list(codes), np.uint8)
    assert [hex(word) for word in pack(given, bits)] == [hex(word) for word in words]
    np.testing.assert_array_equal(unpack(np.array(words, np.uint32), bits), given)


@each_form
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_values_equal_the_definition(form: AffineForm, dtype: DTypeLike) -> None:
    packed = quantize(uneven(5, 128, dtype), form)
    wanted = [[slow_value(packed, form, row, column) for column in range(128)] for row in range(5)]
    np.testing.assert_array_equal(dequantize(packed, form), np.array(wanted, np.float32))


@each_form
def test_quantizer_equals_the_definition(form: AffineForm) -> None:
    weight = uneven(6, 128)
    packed = quantize(weight, form)
    codes = unpack(packed.words, form.bits).reshape(6, -1, form.group_size)
    for row in range(6):
        for group in range(128 // form.group_size):
            columns = weight[row, group * form.group_size : (group + 1) * form.group_size]
            wanted, scale, bias = slow_quantize(columns, form.bits)
            assert codes[row, group].tolist() == wanted
            assert (packed.scales[row, group], packed.biases[row, group]) == (scale, bias)


@each_form
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_larger_extreme_of_each_group_is_exact_and_the_rest_near(form: AffineForm, dtype: DTypeLike) -> None:
    weight = uneven(12, 256, dtype)
    packed = quantize(weight, form)
    assert packed.scales.dtype == packed.biases.dtype == dtype
    found = dequantize(packed, form).reshape(-1, form.group_size)
    groups = weight.astype(np.float32).reshape(-1, form.group_size)
    rows = np.arange(len(groups))
    largest = np.abs(groups).argmax(axis=1)
    np.testing.assert_array_equal(found[rows, largest], groups[rows, largest])
    # Half a step, and what rounding scale and bias to bfloat16 adds to it.
    span = np.maximum(groups.max(axis=1), 0) - groups.min(axis=1)
    step = span / form.levels
    rounding = 2.0**-7 * np.abs(groups).max(axis=1) if dtype == ml_dtypes.bfloat16 else 1e-6
    # The extreme over a whole number of steps moves the step by up to a share of itself, so the far end may be cut.
    assert (np.abs(found - groups).max(axis=1) <= step + rounding).all()


@pytest.mark.parametrize("bits", BITS)
def test_packed_weights_equal_those_of_mlx(bits: int) -> None:
    golden = json.loads((GOLDENS / "mlx_affine.json").read_text())
    form, wanted = AffineForm(bits, golden["group_size"]), golden["bits"][str(bits)]
    found = quantize(np.array(golden["weight"], np.float32), form)
    for part, name in zip(found, ("words", "scales", "biases"), strict=True):
        np.testing.assert_array_equal(part, np.array(wanted[name], part.dtype), err_msg=name)
    np.testing.assert_array_equal(dequantize(found, form), np.array(wanted["values"], np.float32))


def test_scales_have_both_signs() -> None:
    form = AffineForm(4, 32)
    weight = np.stack([np.linspace(-2, 1, 32), np.linspace(-1, 2, 32)]).astype(np.float32)
    packed = quantize(weight, form)
    assert packed.scales[0, 0] > 0 > packed.scales[1, 0]
    assert packed.biases.ravel().tolist() == [-2, 2]


def test_zeros_stay_zeros() -> None:
    form = AffineForm(4, 64)
    assert not dequantize(quantize(np.zeros((2, 128), np.float32), form), form).any()


def test_zero_among_a_group_is_exact() -> None:
    weight = uneven(8, 64)
    weight[4:, ::7] = 0
    form = AffineForm(4, 64)
    found = dequantize(quantize(weight, form), form)
    assert np.abs(found[4:, ::7]).max() < 1e-6


def test_read_as_bfloat16_is_rounded_once() -> None:
    form = AffineForm(4, 64)
    packed = quantize(uneven(64, 256, ml_dtypes.bfloat16), form)
    wanted = dequantize(packed, form).astype(ml_dtypes.bfloat16)
    found = dequantize(packed, form, ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found.view(np.uint16), wanted.view(np.uint16))


def test_many_rows_are_worked_on_in_parts() -> None:
    form = AffineForm(6, 64)
    weight = uneven(2050, 256)
    whole = quantize(weight, form)
    for rows in (slice(0, 7), slice(2043, 2050)):
        few = quantize(weight[rows], form)
        for part, found in zip(few, whole, strict=True):
            np.testing.assert_array_equal(found[rows], part)
        np.testing.assert_array_equal(dequantize(whole, form)[rows], dequantize(few, form))


def test_stacked_weights_keep_their_leading_axes() -> None:
    form = AffineForm(4, 64)
    weight = uneven(6, 128)
    flat, stacked = quantize(weight, form), quantize(weight.reshape(2, 3, 128), form)
    assert [part.shape for part in stacked] == [(2, 3, 16), (2, 3, 2), (2, 3, 2)]
    np.testing.assert_array_equal(dequantize(stacked, form).reshape(6, 128), dequantize(flat, form))


def test_size_is_bits_and_a_share_of_scale_and_bias() -> None:
    packed = quantize(np.zeros((64, 512), ml_dtypes.bfloat16), AffineForm(4, 64))
    assert sum(part.nbytes for part in packed) * 8 / (64 * 512) == 4.5


@pytest.mark.parametrize(
    ("bits", "group_size", "message"),
    [
        (7, 64, "7 bits; affine quantization has 2, 3, 4, 5, 6 and 8"),
        (1, 64, "1 bits"),
        (4, 16, "group size 16; affine quantization has 32, 64 and 128"),
        (4, 0, "group size 0"),
    ],
)
def test_forms_that_mlx_lacks(bits: int, group_size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AffineForm(bits, group_size)


@pytest.mark.parametrize("columns", [0, 63, 96])
def test_columns_that_groups_do_not_fill(columns: int) -> None:
    with pytest.raises(ValueError, match=rf"{columns} columns are no multiple of the group size 64"):
        quantize(np.ones((2, columns), np.float32), AffineForm(4, 64))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite(value: float) -> None:
    weight = np.ones((2, 64), np.float32)
    weight[1, 5] = value
    with pytest.raises(ValueError, match="not finite"):
        quantize(weight, AffineForm(4, 64))


def test_codes_that_do_not_fill_words() -> None:
    with pytest.raises(ValueError, match="7 codes of 4 bits do not fill whole 32-bit words"):
        pack(np.zeros(7, np.uint8), 4)


def test_words_that_cut_a_code() -> None:
    with pytest.raises(ValueError, match="2 words hold no whole number of codes of 3 bits"):
        unpack(np.zeros(2, np.uint32), 3)
    with pytest.raises(ValueError, match="words of type int32; packed codes are uint32"):
        unpack(np.zeros(8, np.int32), 4)


@pytest.mark.parametrize(
    ("scales", "biases"), [((2, 1), (2, 2)), ((2, 2), (2, 1)), ((1, 2), (2, 2)), ((2, 4), (2, 4)), ((2,), (2,))]
)
def test_shapes_that_do_not_belong_together(scales: tuple[int, ...], biases: tuple[int, ...]) -> None:
    form = AffineForm(4, 64)
    check_shapes((2, 16), (2, 2), (2, 2), form)
    with pytest.raises(ValueError, match=r"words \(2, 16\) of 4 bits need scales and biases \(2, 2\).*found scales"):
        check_shapes((2, 16), scales, biases, form)
