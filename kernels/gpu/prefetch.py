"""Brings weights to the second-level cache from blocks that have nothing else to do."""

from __future__ import annotations

from typing import Any

from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.ahead import Ahead

BOX = 256
"""Rows and columns of a matrix that one instruction brings, as many as the copy engine takes."""


def boxes_of(ahead: Ahead | None) -> int:
    """How many boxes to bring; none of a matrix that is no whole number of them."""
    if ahead is None:
        return 0
    _, columns, inner = ahead.weight.shape
    if columns % BOX or inner % (BOX * ahead.split):
        return 0
    box_bytes = BOX * BOX * ahead.weight.dtype.itemsize
    return min(columns * inner * ahead.weight.dtype.itemsize, ahead.most_bytes) // box_bytes


def bring(weight_ref: Any, layer: Any, number: Any, split: int) -> None:
    """One box, in the order in which a product reads them: all its columns and parts side by side."""
    _, columns, inner = weight_ref.shape
    row, rest = number % (columns // BOX), number // (columns // BOX)
    first = rest % split * (inner // split) + rest // split * BOX
    plgpu.async_prefetch(weight_ref.at[layer, pl.ds(row * BOX, BOX), pl.ds(first, BOX)])
