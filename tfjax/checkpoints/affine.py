"""Affine quantization as MLX stores it: packed codes with a scale and a bias for each group of columns.

A weight [..., in] is stored as `words` uint32 [..., in * bits / 32] and as `scales` and `biases` [..., in / group].
A value is scale * code + bias in float32. The codes of a row are one stream of bits, lowest bit of the lowest byte
first; scales may be negative.

Source: the definition of mx.quantize and mx.dequantize, mode "affine", in MLX's documentation and kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
AFFINE = "AFFINE"
"""Beginning of the stored type of a packed tensor; the bits of a code follow."""

_LEAST_SCALE = np.float32(1e-7)
# Elements worked on at once: what is made in between stays in a core's cache.
_CHUNK = 1 << 17


@dataclass(frozen=True, slots=True)
class AffineForm:
    """How a weight is quantized.

    Attributes:
        bits: of a code.
        group_size: neighbouring columns that share a scale and a bias.

    Raises:
        ValueError: a form that MLX does not have.
    """

    bits: int
    group_size: int

    def __post_init__(self) -> None:
        if self.bits not in BITS:
            raise ValueError(f"{self.bits} bits; affine quantization has {_listed(BITS)}")
        if self.group_size not in GROUP_SIZES:
            raise ValueError(f"group size {self.group_size}; affine quantization has {_listed(GROUP_SIZES)}")

    @property
    def levels(self) -> int:
        """The largest code."""
        return (1 << self.bits) - 1

    def words(self, columns: int) -> int:
        """uint32 words of a row. Raises ValueError unless whole groups fill the row."""
        if columns == 0 or columns % self.group_size:
            raise ValueError(f"{columns} columns are no multiple of the group size {self.group_size}")
        return columns * self.bits // 32


class Packed(NamedTuple):
    """A quantized weight: words uint32 [..., in * bits / 32], scales and biases [..., in / group]."""

    words: NDArray[np.uint32]
    scales: NDArray[Any]
    biases: NDArray[Any]


def pack(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint32]:
    """Codes [..., n] as words [..., n * bits / 32].

    Raises:
        ValueError: `n` codes do not fill whole words.
    """
    count = codes.shape[-1]
    if count * bits % 32:
        raise ValueError(f"{count} codes of {bits} bits do not fill whole 32-bit words")
    size, each = _run(bits)
    runs = codes.reshape(*codes.shape[:-1], -1, each)
    data = np.zeros((*runs.shape[:-1], size), np.uint8)
    for place in range(each):
        byte, shift = divmod(place * bits, 8)
        data[..., byte] |= runs[..., place] << shift
        if shift + bits > 8:
            data[..., byte + 1] |= runs[..., place] >> (8 - shift)
    return data.reshape(*codes.shape[:-1], -1).view("<u4")


def unpack(words: NDArray[np.uint32], bits: int) -> NDArray[np.uint8]:
    """Codes [..., n] of words [..., n * bits / 32].

    Raises:
        ValueError: the last code of a row is cut, or the words are no uint32.
    """
    if words.dtype != np.uint32:
        raise ValueError(f"words of type {words.dtype}; packed codes are uint32")
    size, each = _run(bits)
    if words.shape[-1] * 4 % size:
        raise ValueError(f"{words.shape[-1]} words hold no whole number of codes of {bits} bits")
    data = np.ascontiguousarray(words, "<u4").view(np.uint8)
    runs = data.reshape(*data.shape[:-1], -1, size)
    codes = np.empty((*runs.shape[:-1], each), np.uint8)
    mask = np.uint8((1 << bits) - 1)
    for place in range(each):
        byte, shift = divmod(place * bits, 8)
        code = runs[..., byte] >> shift
        if shift + bits > 8:
            code |= runs[..., byte + 1] << (8 - shift)
        np.bitwise_and(code, mask, out=codes[..., place])
    return codes.reshape(*data.shape[:-1], -1)


def _run(bits: int) -> tuple[int, int]:
    """The fewest bytes that hold whole codes, and how many."""
    whole = math.lcm(bits, 8)
    return whole // 8, whole // bits


def dequantize(packed: Packed, form: AffineForm, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """The weight [..., in]: scale * code + bias in float32, then rounded once to `dtype`.

    Raises:
        ValueError: shapes that do not belong together.
    """
    check_shapes(packed.words.shape, packed.scales.shape, packed.biases.shape, form)
    leading, columns = packed.words.shape[:-1], packed.words.shape[-1] * 32 // form.bits
    flat = Packed(*(part.reshape(-1, part.shape[-1]) for part in packed))
    values = np.empty((len(flat.words), columns), dtype)

    def fill(rows: slice) -> None:
        values[rows] = _values(Packed(*(part[rows] for part in flat)), form)

    _for_rows(fill, len(values), columns)
    return values.reshape(*leading, columns)


def check_shapes(words: tuple[int, ...], scales: tuple[int, ...], biases: tuple[int, ...], form: AffineForm) -> None:
    """Raises ValueError, with the shapes expected, unless words, scales and biases are one weight of this form."""
    columns = words[-1] * 32 // form.bits
    expected = (*words[:-1], columns // form.group_size)
    if form.words(columns) != words[-1] or scales != expected or biases != expected:
        raise ValueError(
            f"words {words} of {form.bits} bits need scales and biases {expected} for groups of {form.group_size}; "
            f"found scales {scales} and biases {biases}"
        )


def quantize(weight: NDArray[Any], form: AffineForm) -> Packed:
    """Packs a weight [..., in]. One extreme of each group keeps its value; scales and biases have the weight's type.

    Zero gets a code of its own as nearly as the extreme allows: the scale is the extreme over a whole number.

    Raises:
        ValueError: groups that do not fill the rows, or values that are not finite.
    """
    leading, columns = weight.shape[:-1], weight.shape[-1]
    width, groups = form.words(columns), columns // form.group_size
    rows = weight.reshape(-1, columns)
    words = np.empty((len(rows), width), np.uint32)
    scales, biases = (np.empty((len(rows), groups), weight.dtype) for _ in range(2))

    def fill(part: slice) -> None:
        codes, scale, bias = _quantized(rows[part].astype(np.float32), form)
        words[part], scales[part], biases[part] = pack(codes, form.bits), scale, bias

    _for_rows(fill, len(rows), columns)
    return Packed(*(part.reshape(*leading, part.shape[-1]) for part in (words, scales, biases)))


def _quantized(
    rows: NDArray[np.float32], form: AffineForm
) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]:
    """Codes [R, in], scales and biases [R, groups], as MLX's kernel finds them."""
    if not np.isfinite(rows).all():
        raise ValueError("values that are not finite")
    grouped = rows.reshape(len(rows), -1, form.group_size)
    least, most = grouped.min(axis=-1), np.maximum(grouped.max(axis=-1), 0)
    scale = np.maximum((most - least) / np.float32(form.levels), _LEAST_SCALE)
    below = np.abs(least) > np.abs(most)
    scale = np.where(below, scale, -scale)
    edge = np.where(below, least, most)
    steps = np.rint(edge / scale)
    at_zero = steps == 0
    scale = np.where(at_zero, scale, edge / np.where(at_zero, 1, steps))
    bias = np.where(at_zero, np.float32(0), edge)
    # Codes belong to the unrounded scale and bias, whatever type these are stored in.
    codes = np.clip(np.rint((grouped - bias[..., None]) / scale[..., None]), 0, form.levels)
    return codes.astype(np.uint8).reshape(rows.shape), scale, bias


def _values(packed: Packed, form: AffineForm) -> NDArray[np.float32]:
    codes = unpack(packed.words, form.bits).reshape(*packed.scales.shape, form.group_size)
    values = codes.astype(np.float32)
    values *= packed.scales.astype(np.float32)[..., None]
    values += packed.biases.astype(np.float32)[..., None]
    return values.reshape(len(codes), -1)


def _for_rows(fill: Callable[[slice], None], rows: int, columns: int) -> None:
    """Calls `fill` for slices of rows, on all cores where there are several slices."""
    parts = list(_slices(rows, max(1, _CHUNK // columns)))
    if len(parts) == 1:
        fill(parts[0])
        return
    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, parts))


def _slices(rows: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def _listed(values: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, values[:-1]))} and {values[-1]}"
