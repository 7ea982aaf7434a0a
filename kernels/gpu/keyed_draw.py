"""Keyed draws in two starts: the winner of every block of the vocabulary, then the winner of each row's blocks.

A block scales its logits below its own peak and the second start its winners below the row's, so that logits are read
once. Both depend on the row alone.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.gpu.launch import PLAIN, Grid, Launch, launch, scalar
from tfjax.kernels.gpu.tiles import WARPGROUP, row_layout
from tfjax.kernels.keyed_draw import LOWEST, NOT_FINITE, DrawKeys
from tfjax.kernels.noise import token_noise
from tfjax.kernels.routes import Unsupported

BLOCK_COLUMNS = 1024
"""Columns that a block takes, where a row has as many."""

_ONE = 0x3F800000
"""Bits of 1.0."""


def keyed_draw(
    logits: jax.Array, keys: DrawKeys, count: jax.Array, ids: jax.Array | None = None, *, how: Launch = PLAIN
) -> jax.Array:
    """The device route of `tfjax.kernels.keyed_draw.keyed_draw`."""
    rows, columns = logits.shape
    size = block_columns(columns)
    blocks = pl.cdiv(columns, size)
    room = pl.cdiv(blocks, WARPGROUP) * WARPGROUP
    operands = [scalar(count), _packed(keys)]
    (winners, numbers), _ = launch(
        functools.partial(_block, columns=columns, size=size),
        Grid((("block", blocks), ("row", rows))),
        [jax.ShapeDtypeStruct((rows, room), jnp.int32), jax.ShapeDtypeStruct((rows, 3, room), jnp.float32)],
        [*operands, logits, *([] if ids is None else [ids])],
        name=f"draw_blocks_{columns}",
        how=how,
    )
    (column,), _ = launch(
        functools.partial(_row, columns=columns, blocks=blocks),
        Grid((("row", rows),)),
        [jax.ShapeDtypeStruct((rows,), jnp.int32)],
        [*operands, winners, numbers],
        name=f"draw_row_{columns}",
        how=how,
    )
    return column


def block_columns(columns: int) -> int:
    """Columns of a block. The last block ends where a row does and takes some of the one before it again.

    Raises:
        Unsupported: where rows are not aligned, or shorter than the least block.
    """
    if columns % 4 or columns < WARPGROUP:
        raise Unsupported(
            f"a vocabulary of {columns}; the device route takes multiples of 4 and {WARPGROUP} at least; "
            "use the reference route"
        )
    return min(BLOCK_COLUMNS, columns // WARPGROUP * WARPGROUP)


class _Keys(NamedTuple):
    """One row's keys: scalars, the temperature by its bits."""

    temperature: Any
    low: Any
    high: Any
    position: Any
    masked: Any

    @property
    def sampled(self) -> Any:
        """Bits of a number above 0, and of no other, are an integer above 0."""
        return self.temperature > 0

    def over_temperature(self, x: Any) -> Any:
        """x over the temperature, which has no bits of its own type before it is a vector."""
        bits = jnp.full(x.shape, jnp.where(self.sampled, self.temperature, _ONE))
        return x / lax.bitcast_convert_type(bits, jnp.float32)


def _packed(keys: DrawKeys) -> jax.Array:
    """One operand of all, which is one small kernel to make. Shape: int32 [R, 5]."""
    words = [keys.temperature, keys.seed[:, 0], keys.seed[:, 1], keys.position, keys.masked.astype(jnp.int32)]
    return jnp.stack([lax.bitcast_convert_type(word, jnp.int32) for word in words], -1)


def _keys_of(keys_ref: Any, row: Any) -> _Keys:
    temperature, low, high, position, masked = (keys_ref[row, i] for i in range(len(_Keys._fields)))
    low, high, position = (word.astype(jnp.uint32) for word in (low, high, position))
    return _Keys(temperature, low, high, position, masked != 0)


def _block(count_ref: Any, keys_ref: Any, logits_ref: Any, *refs: Any, columns: int, size: int) -> None:
    """The winner of one block: its column, the block's peak, the winner's logit and its noise."""
    *known_refs, winners_ref, numbers_ref = refs
    block, row = lax.axis_index("block"), lax.axis_index("row")
    layout = row_layout(size)

    @pl.when(row < count_ref[0])
    def _() -> None:
        keys = _keys_of(keys_ref, row)
        first = jnp.minimum(block * size, columns - size)

        def read(ref: Any) -> Any:
            return plgpu.load(ref.at[pl.ds(first, size)], layout=layout, optimized=False)

        logits = read(logits_ref.at[row])
        column = plgpu.broadcasted_iota(jnp.int32, (size,), 0, layout=layout) + first
        peak = jnp.maximum(jnp.max(logits), LOWEST)
        masked = jnp.full((size,), keys.masked) & (logits == -jnp.inf)
        unsound = jnp.max(jnp.where((jnp.abs(logits) < jnp.inf) | masked, 0, 1))

        def finish(score: Any, noise: Any) -> None:
            winner = first_of_largest(score, column, columns)
            mine = column == winner
            winners_ref[row, block] = jnp.where(unsound > 0, NOT_FINITE, winner)
            numbers_ref[row, 0, block] = peak
            numbers_ref[row, 1, block] = jnp.max(jnp.where(mine, logits, -jnp.inf))
            numbers_ref[row, 2, block] = 0.0 if noise is None else jnp.max(jnp.where(mine, noise, -jnp.inf))

        @pl.when(keys.sampled)
        def _() -> None:
            token = read(known_refs[0]) if known_refs else column
            noise = token_noise((keys.low, keys.high), keys.position, token.astype(jnp.uint32))
            finish(keys.over_temperature(logits - peak) + noise, noise)

        @pl.when(jnp.logical_not(keys.sampled))
        def _() -> None:
            finish(logits, None)


def _row(
    count_ref: Any, keys_ref: Any, winners_ref: Any, numbers_ref: Any, column_ref: Any, *, columns: int, blocks: int
) -> None:
    """The winner of one row's blocks."""
    row = lax.axis_index("row")
    room = winners_ref.shape[1]
    layout = row_layout(room)

    @pl.when(row < count_ref[0])
    def _() -> None:
        keys = _keys_of(keys_ref, row)
        live = plgpu.broadcasted_iota(jnp.int32, (room,), 0, layout=layout) < blocks

        def read(ref: Any, other: Any) -> Any:
            return jnp.where(live, plgpu.load(ref, layout=layout, optimized=False), other)

        winners = read(winners_ref.at[row], columns)
        logits, noise = read(numbers_ref.at[row, 1], -jnp.inf), read(numbers_ref.at[row, 2], 0.0)
        peak = jnp.max(read(numbers_ref.at[row, 0], LOWEST))
        noisy = keys.over_temperature(logits - peak) + noise
        score = jnp.where(jnp.full((room,), keys.sampled), noisy, logits)
        column = first_of_largest(score, winners, columns)
        column_ref[row] = jnp.where(jnp.min(winners) < 0, NOT_FINITE, column)


def first_of_largest(score: Any, column: Any, columns: int) -> Any:
    """The least column of the largest score."""
    return jnp.min(jnp.where(score == jnp.max(score), column, columns))
