"""Streams of gated inputs run through the short convolution in forwards of chosen shapes, and what must come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tests.row_invariance import rows_of_normals
from tfjax.kernels import short_conv

LENGTH, PAGES, LANES, SIZE = 270, 6, 4, 12
SCRATCH = LANES


class Part(NamedTuple):
    """Positions [start, stop) of one stream in one lane."""

    stream: int
    lane: int
    start: int
    stop: int


class Material(NamedTuple):
    """What the streams bring at every position. Shapes: before, after, x [streams, LENGTH, D], weight [D, C]."""

    before: NDArray[Any]
    after: NDArray[Any]
    x: NDArray[Any]
    weight: NDArray[Any]
    bias: NDArray[Any] | None


def material(dtype: Any, taps: int = 3, *, bias: bool = False) -> Material:
    streams = [rows_of_normals(seed, 2 * LENGTH, SIZE, dtype=dtype).reshape(2, LENGTH, SIZE) for seed in range(3)]
    weight = rows_of_normals(7, SIZE, taps, dtype=dtype)
    return Material(*streams, weight, rows_of_normals(8, SIZE, dtype=dtype) if bias else None)


def whole(m: Material, stream: int) -> NDArray[np.float64]:
    """The convolution over a whole stream in float64, its inputs rounded as they are stored. Shape: [LENGTH, D]."""
    before, after, x, weight = (np.asarray(part, np.float64) for part in m[:4])
    u = (before[stream] * x[stream]).astype(m.x.dtype).astype(np.float64)
    taps = weight.shape[1]
    padded = np.concatenate([np.zeros((taps - 1, SIZE)), u])
    total = sum(weight[:, j] * padded[j : j + LENGTH] for j in range(taps))
    return after[stream] * (total + (0 if m.bias is None else np.asarray(m.bias, np.float64)))


def compiled() -> Any:
    """The operator as it is now, with a compilation of its own."""

    def operator(*operands: Any) -> Any:
        return short_conv.short_conv(*operands)

    return jax.jit(operator)


OPERATOR = compiled()


class ConvStreams:
    """Lanes with pages of their own, or as `tables` says. The state starts as NaN: nothing unwritten may be read.

    `operator` is the short convolution, compiled; a changed one needs a compilation of its own.
    """

    def __init__(self, m: Material, tables: Sequence[Sequence[int]] | None = None, operator: Any = None):
        self.m = m
        self.operator = operator or OPERATOR
        ring = np.full((LANES + 1, short_conv.RING, SIZE), np.nan).astype(m.x.dtype)
        tails = np.full((1 + LANES * PAGES, m.weight.shape[1] - 1, SIZE), np.nan).astype(m.x.dtype)
        self.state: Any = (jnp.asarray(ring), jnp.asarray(tails))
        own = 1 + np.arange(LANES * PAGES).reshape(LANES, PAGES)
        self.table = np.concatenate([own if tables is None else np.array(tables), np.zeros((1, PAGES), int)])
        self.found: dict[tuple[int, int], NDArray[Any]] = {}

    def forward(self, *parts: Part, rows: int = 0, change: int = 0) -> None:
        """One forward of the parts, padded to `rows`. `change` makes all of them other rows than the stream's."""
        stream = np.concatenate([np.full(part.stop - part.start, part.stream) for part in parts])
        lane = np.concatenate([np.full(part.stop - part.start, part.lane) for part in parts])
        position = np.concatenate([np.arange(part.start, part.stop) for part in parts])
        used = len(position)
        padding = (0, max(0, rows - used))

        def laid(array: NDArray[Any]) -> NDArray[Any]:
            own = array[stream, position] + array.dtype.type(change)
            return np.pad(own, (padding, (0, 0)), constant_values=np.nan)

        y, self.state = self.operator(
            (laid(self.m.before), laid(self.m.after)),
            laid(self.m.x),
            self.m.weight,
            self.m.bias,
            self.state,
            (
                np.pad(lane, padding, constant_values=SCRATCH).astype(np.int32),
                np.pad(position, padding).astype(np.int32),
            ),
            self.table.astype(np.int32),
        )
        self.found |= zip(zip(stream.tolist(), position.tolist(), strict=True), np.asarray(y)[:used], strict=True)

    def poison_lane(self, lane: int) -> None:
        """What an earlier stream left behind, at its worst."""
        ring, tails = self.state
        pages = self.table[lane]
        self.state = ring.at[lane].set(jnp.nan), tails.at[pages].set(jnp.nan)

    def rows(self, stream: int, stop: int) -> NDArray[Any]:
        """Shape: [stop, D]."""
        return np.stack([self.found[stream, position] for position in range(stop)])
