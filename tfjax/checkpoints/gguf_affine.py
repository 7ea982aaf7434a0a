"""GGUF's blocks of 32 whose values are affine in their codes, in the layout of MLX's affine quantization.

Values keep their bits: a block's scale and minimum become the group's scale and bias, and codes are laid in order.
Source: the definition of block_q4_1 and block_q8_0 in ggml.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints.affine import AffineForm, Packed, pack

BLOCK = 32
"""Values of a block."""

_HALF = 2
"""Bytes of a float16."""

Q4_1, Q8_0 = AffineForm(4, BLOCK), AffineForm(8, BLOCK)

_BYTES = {"Q4_1": 2 * _HALF + BLOCK // 2, "Q8_0": _HALF + BLOCK}
_ZERO = 128
"""The code that a signed zero becomes."""


def affine_of(kind: str, rows: NDArray[np.uint8]) -> tuple[Packed, AffineForm]:
    """A tensor's blocks as codes, scales and biases, the latter two float16.

    Shapes: rows [..., blocks * bytes of a block], as the file holds them -> words [..., blocks * 32 * bits / 32],
    scales and biases [..., blocks].

    Raises:
        ValueError: another type, blocks that are cut, or Q8_0 scales that a float16 bias of 128 of them overflows.
    """
    if kind not in _BYTES:
        raise ValueError(f"blocks of type {kind}; those with an affine form here are {' and '.join(_BYTES)}")
    size = _BYTES[kind]
    if rows.dtype != np.uint8 or rows.shape[-1] % size:
        raise ValueError(f"rows of {rows.shape[-1]} {rows.dtype} hold no whole blocks of {size} bytes of {kind}")
    blocks = rows.reshape(*rows.shape[:-1], -1, size)
    return (_of_q4_1(blocks), Q4_1) if kind == "Q4_1" else (_of_q8_0(blocks), Q8_0)


def _half(blocks: NDArray[np.uint8], first: int) -> NDArray[np.float16]:
    """A float16 of each block."""
    return np.ascontiguousarray(blocks[..., first : first + _HALF]).view("<f2")[..., 0]


def _of_q4_1(blocks: NDArray[np.uint8]) -> Packed:
    """value = scale * code + minimum; the low halves of the bytes come before the high ones."""
    data = blocks[..., 2 * _HALF :]
    codes = np.concatenate([data & 15, data >> 4], -1)
    return Packed(pack(codes.reshape(*blocks.shape[:-2], -1), Q4_1.bits), _half(blocks, 0), _half(blocks, _HALF))


def _of_q8_0(blocks: NDArray[np.uint8]) -> Packed:
    """value = scale * signed code, so that scale * (code + 128) + -128 * scale has no rounding."""
    scales = _half(blocks, 0)
    with np.errstate(over="ignore"):
        biases = scales * np.float16(-_ZERO)
    if not np.isfinite(biases[np.isfinite(scales)]).all():
        raise ValueError(f"scales up to {np.abs(scales).max()}; {_ZERO} of them overflow float16, so expand the tensor")
    codes = blocks[..., _HALF:] ^ np.uint8(_ZERO)
    return Packed(pack(codes.reshape(*blocks.shape[:-2], -1), Q8_0.bits), scales, biases)
