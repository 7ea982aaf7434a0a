"""GGUF's blocks of 32 whose values are affine in their codes, in the layout of MLX's affine quantization.

Values keep their bits: a block's scale becomes the group's scale, its minimum the bias, and codes are laid in order. In
types without a minimum codes are signed, and the bias is what takes their offset off again. It is exact in float16, so
that values are equal too; only a zero of a negative scale loses its sign, which no sum sees.

Source: the definition of block_q4_0, block_q4_1 and block_q8_0 in ggml.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints.affine import AffineForm, Packed, pack

BLOCK = 32
"""Values of a block."""

FORMS: Mapping[str, AffineForm] = {
    "Q4_0": AffineForm(4, BLOCK),
    "Q4_1": AffineForm(4, BLOCK),
    "Q8_0": AffineForm(8, BLOCK),
}
"""Types of blocks that have an affine form, and that form."""

_HALF = 2
"""Bytes of a float16."""

_HALVES = {"Q4_0": 1, "Q4_1": 2, "Q8_0": 1}
"""Of a block, before its codes: the scale and perhaps the minimum."""


def affine_of(kind: str, rows: NDArray[np.uint8]) -> tuple[Packed, AffineForm]:
    """A tensor's blocks as codes, scales and biases, the latter two float16.

    Shapes: rows [..., blocks * bytes of a block], as the file holds them -> words [..., blocks * 32 * bits / 32],
    scales and biases [..., blocks].

    Raises:
        ValueError: another type, blocks that are cut, or scales of which the offset of the codes overflows float16.
    """
    form = FORMS.get(kind)
    if form is None:
        raise ValueError(f"blocks of type {kind}; those with an affine form are {', '.join(FORMS)}")
    head = _HALVES[kind] * _HALF
    size = head + BLOCK * form.bits // 8
    if rows.dtype != np.uint8 or rows.shape[-1] % size:
        raise ValueError(f"rows of {rows.shape[-1]} {rows.dtype} hold no whole blocks of {size} bytes of {kind}")
    blocks = rows.reshape(*rows.shape[:-1], -1, size)
    scales = _half(blocks, 0)
    biases = _half(blocks, _HALF) if _HALVES[kind] > 1 else _offsets(scales, 1 << (form.bits - 1))
    codes = _codes(blocks[..., head:], form.bits).reshape(*blocks.shape[:-2], -1)
    return Packed(pack(codes, form.bits), scales, biases), form


def _half(blocks: NDArray[np.uint8], first: int) -> NDArray[np.float16]:
    """A float16 of each block."""
    return np.ascontiguousarray(blocks[..., first : first + _HALF]).view("<f2")[..., 0]


def _codes(data: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Unsigned codes [..., 32]. Of four bits, the low halves of the bytes come first; eight bits are stored signed."""
    return data ^ np.uint8(128) if bits == 8 else np.concatenate([data & 15, data >> 4], -1)


def _offsets(scales: NDArray[np.float16], zero: int) -> NDArray[np.float16]:
    """What scale * code needs added where the code `zero` stands for 0: a power of two times the scale, so exact."""
    with np.errstate(over="ignore", invalid="ignore"):
        biases = scales * np.float16(-zero)
    if not np.isfinite(biases[np.isfinite(scales)]).all():
        most = np.abs(scales[np.isfinite(scales)]).max()
        raise ValueError(f"scales up to {most}, of which {zero} overflow float16")
    return biases
