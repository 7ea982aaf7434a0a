"""The gated short convolution of LFM2 over flat rows, whose state lies at the place that its position gives.

An input is stored in its page's tail if it is among the last C - 1 places of the page, else in its lane's ring. So a
page carries what the next page's first rows need, wherever it is shared; and as with keys, nothing is undone when rows
are rejected: they lie past the stream's length and are overwritten when their position is computed again.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.reduce import in_turn

RING = 2 * PAGE_ROWS
"""Places of a lane's ring. C - 1 inputs before a window and the window's own must not share a place."""

MOST_TAPS = PAGE_ROWS
"""Taps of the longest convolution whose inputs before a page lie all in one page's tail."""


def short_conv(
    gates: tuple[jax.Array, jax.Array],
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None,
    state: tuple[jax.Array, jax.Array],
    place: tuple[jax.Array, jax.Array],
    page_table: jax.Array,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """after * conv(before * x), where conv sums the inputs at positions p - C + 1 .. p by the taps in this order.

    The input before * x is rounded to the dtype of x; the sum and the second gate are float32 and rounded once. Before
    position 0 stand zeros. Rows of a lane stand in ascending order of positions.

    Shapes: gates (before, after) [R, D] each, x [R, D], weight [D, C], bias [D] or None, state (ring [lanes, RING, D],
    tails [P, C - 1, D]), place (lane, position) int32 [R] each, page_table int32 [lanes, pages]
    -> [R, D] in the dtype of x, and the state with the rows written.
    """
    before, after = gates
    u = _rounded_product(before, x)
    taps = weight.shape[1]
    kept = [_kept(distance, state, place, page_table) for distance in range(1, taps)]
    # Reading first, so that the state can be written in place.
    u, kept = jax.lax.optimization_barrier((u, kept))
    inputs = [_earlier(u, kept[distance - 1], distance, place) for distance in range(taps - 1, 0, -1)]
    products = [row.astype(jnp.float32) * weight[:, tap].astype(jnp.float32) for tap, row in enumerate([*inputs, u])]
    total = in_turn(products)
    if bias is not None:
        total = total + bias.astype(jnp.float32)
    y = (after.astype(jnp.float32) * total).astype(x.dtype)
    return y, _written(u, state, place, page_table)


def _rounded_product(a: jax.Array, b: jax.Array) -> jax.Array:
    """a * b, rounded for certain: a stored input and one of the same forward must have equal bits."""
    wide = a.astype(jnp.float32) * b.astype(jnp.float32)
    kind: Any = jnp.finfo(a.dtype)  # type: ignore[no-untyped-call]
    return jax.lax.reduce_precision(wide, kind.nexp, kind.nmant).astype(a.dtype)


def _above(x: jax.Array, rows: int, fill: int) -> jax.Array:
    """What stands `rows` rows above each row. Shapes: [R, ...] -> [R, ...]."""
    return jnp.pad(x, [(rows, 0)] + [(0, 0)] * (x.ndim - 1), constant_values=fill)[: x.shape[0]]


def _earlier(u: jax.Array, kept: jax.Array, distance: int, place: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Each row's input `distance` positions earlier: of this forward, or as kept, or zeros before position 0."""
    lane, position = place
    here = (_above(lane, distance, -1) == lane) & (_above(position, distance, -1) == position - distance)
    found = jnp.where(here[:, None], _above(u, distance, 0), kept)
    return jnp.where((position >= distance)[:, None], found, 0)


def _kept(
    distance: int, state: tuple[jax.Array, jax.Array], place: tuple[jax.Array, jax.Array], page_table: jax.Array
) -> jax.Array:
    """The stored input `distance` positions before each row; anything where there is none. Shape: [R, D]."""
    ring, tails = state
    lane, position = place
    at = jnp.maximum(position - distance, 0)
    slot = _tail_slot(at, tails.shape[1])
    tail = tails[page_table[lane, at // PAGE_ROWS], jnp.maximum(slot, 0)]
    return jnp.where((slot >= 0)[:, None], tail, ring[lane, at % RING])


def _tail_slot(position: jax.Array, slots: int) -> jax.Array:
    """Place in the page's tail, negative where the position lies in the ring."""
    return position % PAGE_ROWS - (PAGE_ROWS - slots)


def _written(
    u: jax.Array, state: tuple[jax.Array, jax.Array], place: tuple[jax.Array, jax.Array], page_table: jax.Array
) -> tuple[jax.Array, jax.Array]:
    ring, tails = state
    lane, position = place
    in_ring, in_tail = own_places(lane, position, tails.shape[1])
    page = page_table[lane, position // PAGE_ROWS]
    return ring.at[lane, in_ring].set(u, mode="drop"), tails.at[page, in_tail].set(u, mode="drop")


def own_places(lane: jax.Array, position: jax.Array, slots: int) -> tuple[jax.Array, jax.Array]:
    """Where each row's input goes in the lane's ring and in the page's tail of `slots` places, past the end where not.

    Of rows that would share a place in the ring only the last one has it, as not every device writes rows in order.

    Shapes: int32 [R] each.
    """
    slot = _tail_slot(position, slots)
    below = jnp.pad(lane, (0, RING), constant_values=-1)[RING:], jnp.pad(position, (0, RING))[RING:]
    superseded = (below[0] == lane) & (below[1] == position + RING)
    return jnp.where((slot >= 0) | superseded, RING, position % RING), jnp.where(slot >= 0, slot, slots)
