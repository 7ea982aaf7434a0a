"""One int32 matrix that carries everything the host says about a forward's rows, in a single transfer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

FIELDS: dict[str, Any] = {
    # per row; `behind` is 1 where it stands behind a window that the host has not read (see unread)
    "lane": np.int32,
    "position": np.int32,
    "behind": np.int32,
    # per tile; the count stands in column 0
    "tile_count": np.int32,
    "tile_start": np.int32,
    "tile_lane": np.int32,
    "tile_last": np.int32,
    "tile_behind": np.int32,
    # per draw
    "draw_row": np.int32,
    "temperature": np.float32,
    "top_k": np.int32,
    "top_p": np.float32,
    "min_p": np.float32,
    "seed_low": np.uint32,
    "seed_high": np.uint32,
    "presence": np.float32,
    "frequency": np.float32,
    "repetition": np.float32,
    "prompt_end": np.int32,
    "biased": np.int32,
    "banned_until": np.int32,
    "logprobs": np.int32,
}
"""Field name -> dtype, one matrix row each."""

NEUTRAL = {"top_p": 1.0, "repetition": 1.0}
"""Values that padding draws need in order to ask for nothing; all other fields are neutral at 0."""


PLACE = {name: place for place, name in enumerate(FIELDS)}
"""Field name -> its matrix row."""


LANE_AND_POSITION = slice(PLACE["lane"], PLACE["position"] + 1)
"""Matrix rows that say where each row stands."""

_TILES = slice(PLACE["tile_start"], PLACE["tile_last"] + 1)


@cache
def _neutral(columns: int) -> NDArray[np.int32]:
    """A matrix that asks for nothing, to be copied."""
    matrix = np.zeros((len(FIELDS), columns), np.int32)
    for name, value in NEUTRAL.items():
        matrix[PLACE[name]].view(FIELDS[name])[:] = value
    return matrix


class RowsBuffer:
    """Host side: a fresh matrix for one forward, written by field.

    `buffer["position"]` is a writable view of the field's row in its own dtype.

    Attributes:
        runs: what `lay_out` laid in it.
    """

    def __init__(self, columns: int):
        self.runs: Sequence[Run] = ()
        self.matrix: NDArray[np.int32] = _neutral(columns).copy()

    def __getitem__(self, name: str) -> NDArray[Any]:
        field: NDArray[Any] = self.matrix[PLACE[name]]
        dtype = FIELDS[name]
        return field if dtype is np.int32 else field.view(dtype)


class Run(NamedTuple):
    """Rows of one lane at consecutive positions."""

    lane: int
    position: int
    rows: int


def lay_out(buffer: RowsBuffer, runs: Sequence[Run], *, tile_rows: int, scratch_lane: int) -> None:
    """Lay runs end to end from row 0 on, cut them in tiles, and give the rows left over to the scratch lane."""
    lanes: list[int] = []
    positions: list[int] = []
    tiles: list[tuple[int, int, int]] = []  # lists are made into arrays once: small arrays cost more than their rows
    for lane, position, rows in runs:
        row, stop = len(lanes), position + rows
        tiles += [
            (row + offset, lane, min(position + offset + tile_rows, stop) - 1) for offset in range(0, rows, tile_rows)
        ]
        lanes += [lane] * rows
        positions += range(position, stop)
    rows = len(lanes)
    lane_row = buffer["lane"]
    lane_row[:rows] = lanes
    lane_row[rows:] = scratch_lane
    buffer["position"][:rows] = positions
    buffer["tile_count"][0] = len(tiles)
    buffer.matrix[_TILES, : len(tiles)] = np.array(tiles, np.int32).reshape(-1, 3).T
    buffer.runs = runs


def unpack(matrix: jax.Array) -> dict[str, jax.Array]:
    """Device side: every field in its own dtype. Shapes: int32 [fields, columns] -> name: [columns]."""
    return {
        name: matrix[i] if dtype is np.int32 else jax.lax.bitcast_convert_type(matrix[i], jnp.dtype(dtype))
        for i, (name, dtype) in enumerate(FIELDS.items())
    }
