"""The short convolution's step: a block takes some columns of one row, and makes the inputs of the rows above again."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.conv_step import ConvPlaces, ConvState
from tfjax.kernels.gpu.launch import PLAIN, Grid, Launch, launch, scalar
from tfjax.kernels.gpu.tiles import put, row_layout
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.routes import Unsupported
from tfjax.kernels.short_conv import MOST_TAPS, RING

BLOCK_COLUMNS = 512
"""Columns that a block takes, where they divide a row."""


def conv_step(
    parts: jax.Array,
    taps: jax.Array,
    state: ConvState,
    places: ConvPlaces,
    layer: jax.Array,
    count: jax.Array,
    *,
    how: Launch = PLAIN,
) -> tuple[jax.Array, ConvState]:
    """The device route of `tfjax.kernels.conv_step.conv_step`."""
    split, rows, _ = parts.shape
    width, size = taps.shape[1:]
    if not 2 <= width <= MOST_TAPS:
        raise Unsupported(f"a convolution of {width} taps; the device route takes 2 to {MOST_TAPS}")
    columns = BLOCK_COLUMNS if size % BLOCK_COLUMNS == 0 else size
    row_layout(columns)  # Refuses what does not fit before anything is traced.
    by_gate = parts.reshape(split, rows, 3, size)
    operands = [scalar(layer), scalar(count), *places, by_gate, taps]
    kind = jax.ShapeDtypeStruct((rows, size), state.rings.dtype)

    def start(name: str, state: ConvState, *, reads: bool, writes: bool) -> tuple[list[jax.Array], ConvState]:
        out, changed = launch(
            functools.partial(_body, size=columns, reads=reads, writes=writes),
            Grid((("row", rows), ("block", size // columns))),
            [kind] if reads else [],
            operands,
            changed=list(state),
            name=f"{name}_{size}",
            how=how,
        )
        return out, ConvState(*changed)

    if rows <= RING - width + 1:
        (y,), state = start("conv", state, reads=True, writes=True)
        return y, state
    # Such a window may write where inputs before it stand, so that all rows are read before any is written.
    (y,), state = start("conv_read", state, reads=True, writes=False)
    _, state = start("conv_write", state, reads=False, writes=True)
    return y, state


def _body(
    layer_ref: Any,
    count_ref: Any,
    lane_ref: Any,
    position_ref: Any,
    table_ref: Any,
    parts_ref: Any,
    taps_ref: Any,
    rings_ref: Any,
    tails_ref: Any,
    *outputs: Any,
    size: int,
    reads: bool,
    writes: bool,
) -> None:
    row, block = lax.axis_index("row"), lax.axis_index("block")
    layer = layer_ref[0]
    columns = pl.ds(block * size, size)
    state = _State(rings_ref.at[layer], tails_ref.at[layer], table_ref, columns)

    layout = row_layout(size)

    def read(ref: Any) -> Any:
        return plgpu.load(ref, layout=layout, optimized=False)

    def choose(flag: Any, one: Any, other: Any) -> Any:
        return jnp.where(jnp.full((size,), flag), one, other)

    def gate(row: Any, which: int) -> Any:
        """The parts in order, rounded as the product's result is."""
        parts = [read(parts_ref.at[part, row, which, columns]) for part in range(parts_ref.shape[0])]
        return functools.reduce(lambda a, b: a + b, parts).astype(rings_ref.dtype)

    def gated(row: Any) -> Any:
        wide = gate(row, 0).astype(jnp.float32) * gate(row, 2).astype(jnp.float32)
        return wide.astype(rings_ref.dtype)

    def earlier(distance: int) -> Any:
        """The input that many positions before: of this window, or as kept, or zeros before position 0."""
        lane, position = lane_ref[row], position_ref[row]
        other, at = jnp.maximum(row - distance, 0), jnp.maximum(position - distance, 0)
        here = (row >= distance) & (lane_ref[other] == lane) & (position_ref[other] == position - distance)
        # All three are read: their addresses are sound, and to choose is cheaper than to branch.
        kept = choose(state.tail_slot(at) >= 0, read(state.tail(lane, at)), read(state.ring(lane, at)))
        found = choose(here, gated(other), kept)
        return choose(position >= distance, found, jnp.zeros_like(found))

    @pl.when(row < count_ref[0])
    def _() -> None:
        own = gated(row)
        if reads:
            width = taps_ref.shape[1]
            inputs = [*(earlier(distance) for distance in range(width - 1, 0, -1)), own]
            weights = [read(taps_ref.at[layer, tap, columns]) for tap in range(width)]
            products = [a.astype(jnp.float32) * b.astype(jnp.float32) for a, b in zip(inputs, weights, strict=True)]
            total = functools.reduce(lambda a, b: a + b, products)
            put(outputs[0].at[row, columns], (gate(row, 1).astype(jnp.float32) * total).astype(own.dtype))
        if writes:
            lane, position = lane_ref[row], position_ref[row]
            in_tail = state.tail_slot(position) >= 0
            last = last_of_its_place(row, lane_ref, position_ref)
            pl.when(in_tail)(lambda: put(state.tail(lane, position), own))
            pl.when(jnp.logical_not(in_tail) & last)(lambda: put(state.ring(lane, position), own))


def last_of_its_place(row: Any, lane_ref: Any, position_ref: Any) -> Any:
    """Whether no later row of the window goes to the same place of the ring."""
    rows = position_ref.shape[0]
    if rows <= RING:
        return jnp.bool_(True)
    below = jnp.minimum(row + RING, rows - 1)
    other = (lane_ref[below] != lane_ref[row]) | (position_ref[below] != position_ref[row] + RING)
    return other | (row + RING >= rows)


class _State(NamedTuple):
    """Some columns of a layer's state. Shapes: ring [lanes, RING, D], tails [P, C - 1, D], table [lanes, pages]."""

    ring_ref: Any
    tails_ref: Any
    table_ref: Any
    columns: Any

    def tail_slot(self, position: Any) -> Any:
        """Place in the page's tail, negative where the position lies in the ring."""
        return lax.rem(position, PAGE_ROWS) - (PAGE_ROWS - self.tails_ref.shape[1])

    def ring(self, lane: Any, position: Any) -> Any:
        return self.ring_ref.at[lane, lax.rem(position, RING), self.columns]

    def tail(self, lane: Any, position: Any) -> Any:
        """Of a position that is in no tail, any place."""
        page = self.table_ref[lane, position // PAGE_ROWS]
        return self.tails_ref.at[page, jnp.maximum(self.tail_slot(position), 0), self.columns]
