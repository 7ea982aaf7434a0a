"""One int32 matrix that carries everything the host says about a forward's rows, in a single transfer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

FIELDS: dict[str, Any] = {
    # per row
    "lane": np.int32,
    "position": np.int32,
    # per tile; the count stands in column 0
    "tile_count": np.int32,
    "tile_start": np.int32,
    "tile_lane": np.int32,
    "tile_last": np.int32,
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
    "stops_banned": np.int32,
    "logprobs": np.int32,
}
"""Field name -> dtype, one matrix row each."""

NEUTRAL = {"top_p": 1.0, "repetition": 1.0}
"""Values that padding draws need in order to ask for nothing; all other fields are neutral at 0."""


class RowsBuffer:
    """Host side: a fresh matrix for one forward, written by field.

    `buffer["position"]` is a writable view of the field's row in its own dtype.

    Attributes:
        runs: what `lay_out` laid in it.
    """

    def __init__(self, columns: int):
        self.runs: Sequence[Run] = ()
        self.matrix: NDArray[np.int32] = np.zeros((len(FIELDS), columns), np.int32)
        self._row = {name: i for i, name in enumerate(FIELDS)}
        for name, value in NEUTRAL.items():
            self[name][:] = value

    def __getitem__(self, name: str) -> NDArray[Any]:
        field: NDArray[Any] = self.matrix[self._row[name]].view(FIELDS[name])
        return field


class Run(NamedTuple):
    """Rows of one lane at consecutive positions."""

    lane: int
    position: int
    rows: int


def lay_out(buffer: RowsBuffer, runs: Sequence[Run], *, tile_rows: int, scratch_lane: int) -> None:
    """Lay runs end to end from row 0 on, cut them in tiles, and give the rows left over to the scratch lane."""
    lane, position = buffer["lane"], buffer["position"]
    start, tile_lane, last = buffer["tile_start"], buffer["tile_lane"], buffer["tile_last"]
    row = tile = 0
    for run in runs:
        lane[row : row + run.rows] = run.lane
        position[row : row + run.rows] = np.arange(run.position, run.position + run.rows)
        for offset in range(0, run.rows, tile_rows):
            start[tile] = row + offset
            tile_lane[tile] = run.lane
            last[tile] = run.position + min(offset + tile_rows, run.rows) - 1
            tile += 1
        row += run.rows
    lane[row:] = scratch_lane
    buffer["tile_count"][0] = tile
    buffer.runs = runs


def unpack(matrix: jax.Array) -> dict[str, jax.Array]:
    """Device side: every field in its own dtype. Shapes: int32 [fields, columns] -> name: [columns]."""
    return {
        name: matrix[i] if dtype is np.int32 else jax.lax.bitcast_convert_type(matrix[i], jnp.dtype(dtype))
        for i, (name, dtype) in enumerate(FIELDS.items())
    }
