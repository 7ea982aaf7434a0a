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

BLOCK_TOKENS = 1024
"""Tokens that a block takes."""

_ONE = 0x3F800000
"""Bits of 1.0."""


def keyed_draw(logits: jax.Array, keys: DrawKeys, count: jax.Array, *, how: Launch = PLAIN) -> jax.Array:
    """The device route of `tfjax.kernels.keyed_draw.keyed_draw`."""
    rows, vocab = logits.shape
    size = block_tokens(vocab)
    blocks = pl.cdiv(vocab, size)
    room = pl.cdiv(blocks, WARPGROUP) * WARPGROUP
    operands = [scalar(count), _packed(keys)]
    (ids, numbers), _ = launch(
        functools.partial(_block, vocab=vocab, size=size),
        Grid((("block", blocks), ("row", rows))),
        [jax.ShapeDtypeStruct((rows, room), jnp.int32), jax.ShapeDtypeStruct((rows, 3, room), jnp.float32)],
        [*operands, logits],
        name=f"draw_blocks_{vocab}",
        how=how,
    )
    (token,), _ = launch(
        functools.partial(_row, vocab=vocab, blocks=blocks),
        Grid((("row", rows),)),
        [jax.ShapeDtypeStruct((rows,), jnp.int32)],
        [*operands, ids, numbers],
        name=f"draw_row_{vocab}",
        how=how,
    )
    return token


def block_tokens(vocab: int) -> int:
    """Tokens of a block. The last block ends with the vocabulary and takes some of the one before it again.

    Raises:
        Unsupported: where rows of the vocabulary are not aligned, or shorter than the least block.
    """
    if vocab % 4 or vocab < WARPGROUP:
        raise Unsupported(
            f"a vocabulary of {vocab}; the device route takes multiples of 4 and {WARPGROUP} at least; "
            "use the reference route"
        )
    return min(BLOCK_TOKENS, vocab // WARPGROUP * WARPGROUP)


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


def _block(
    count_ref: Any, keys_ref: Any, logits_ref: Any, ids_ref: Any, numbers_ref: Any, *, vocab: int, size: int
) -> None:
    """The winner of one block: its token, the block's peak, the winner's logit and its noise."""
    block, row = lax.axis_index("block"), lax.axis_index("row")
    layout = row_layout(size)

    @pl.when(row < count_ref[0])
    def _() -> None:
        keys = _keys_of(keys_ref, row)
        first = jnp.minimum(block * size, vocab - size)
        logits = plgpu.load(logits_ref.at[row, pl.ds(first, size)], layout=layout, optimized=False)
        token = plgpu.broadcasted_iota(jnp.int32, (size,), 0, layout=layout) + first
        peak = jnp.maximum(jnp.max(logits), LOWEST)
        masked = jnp.full((size,), keys.masked) & (logits == -jnp.inf)
        unsound = jnp.max(jnp.where((jnp.abs(logits) < jnp.inf) | masked, 0, 1))

        def finish(score: Any, noise: Any) -> None:
            winner = first_of_largest(score, token, vocab)
            mine = token == winner
            ids_ref[row, block] = jnp.where(unsound > 0, NOT_FINITE, winner)
            numbers_ref[row, 0, block] = peak
            numbers_ref[row, 1, block] = jnp.max(jnp.where(mine, logits, -jnp.inf))
            numbers_ref[row, 2, block] = 0.0 if noise is None else jnp.max(jnp.where(mine, noise, -jnp.inf))

        @pl.when(keys.sampled)
        def _() -> None:
            noise = token_noise((keys.low, keys.high), keys.position, token.astype(jnp.uint32))
            finish(keys.over_temperature(logits - peak) + noise, noise)

        @pl.when(jnp.logical_not(keys.sampled))
        def _() -> None:
            finish(logits, None)


def _row(
    count_ref: Any, keys_ref: Any, ids_ref: Any, numbers_ref: Any, token_ref: Any, *, vocab: int, blocks: int
) -> None:
    """The winner of one row's blocks."""
    row = lax.axis_index("row")
    room = ids_ref.shape[1]
    layout = row_layout(room)

    @pl.when(row < count_ref[0])
    def _() -> None:
        keys = _keys_of(keys_ref, row)
        live = plgpu.broadcasted_iota(jnp.int32, (room,), 0, layout=layout) < blocks

        def read(ref: Any, other: Any) -> Any:
            return jnp.where(live, plgpu.load(ref, layout=layout, optimized=False), other)

        ids = read(ids_ref.at[row], vocab)
        logits, noise = read(numbers_ref.at[row, 1], -jnp.inf), read(numbers_ref.at[row, 2], 0.0)
        peak = jnp.max(read(numbers_ref.at[row, 0], LOWEST))
        noisy = keys.over_temperature(logits - peak) + noise
        score = jnp.where(jnp.full((room,), keys.sampled), noisy, logits)
        token = first_of_largest(score, ids, vocab)
        token_ref[row] = jnp.where(jnp.min(ids) < 0, NOT_FINITE, token)


def first_of_largest(score: Any, token: Any, vocab: int) -> Any:
    """The least token of the largest score."""
    return jnp.min(jnp.where(score == jnp.max(score), token, vocab))
