"""LFM2's short convolution between its two products: gates, taps and state of a layer of a stack in one pass.

The inputs of a window's first rows come from the state as `short_conv` keeps it, the others' from the window itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfjax.kernels.routes import Route
from tfjax.kernels.short_conv import short_conv


class ConvState(NamedTuple):
    """Gated inputs of every layer, each at the place that its position gives.

    Shapes: rings [L, lanes, RING, D], the last lane being scratch; tails [L, P, C - 1, D], page 0 being scratch.
    """

    rings: jax.Array
    tails: jax.Array


class ConvPlaces(NamedTuple):
    """Where rows stand. Shapes: lane, position int32 [R]; page_table int32 [lanes, pages]."""

    lane: jax.Array
    position: jax.Array
    page_table: jax.Array


def conv_step(
    parts: jax.Array,
    taps: jax.Array,
    state: ConvState,
    places: ConvPlaces,
    layer: jax.Array,
    count: jax.Array,
    *,
    route: Route = Route.REFERENCE,
) -> tuple[jax.Array, ConvState]:
    """Add the parts in order and round to B, C and x; C * conv(B * x), and B * x to its place in the state.

    Rows of a lane stand one below another in ascending order of positions. Rows from count on stand in the scratch
    lane, have no meaning, and may be stored there.

    Shapes: parts float32 [split, R, 3 * D] (B, C, x), taps [L, C, D] (the last for the row itself), layer and count
    int32 [] -> [R, D] in the dtype of the state, and the state.

    Raises:
        Unsupported: where the device route cannot hold a row of D.
    """
    return ROUTES[route](parts, taps, state, places, layer, count)


def _reference(
    parts: jax.Array, taps: jax.Array, state: ConvState, places: ConvPlaces, layer: jax.Array, count: jax.Array
) -> tuple[jax.Array, ConvState]:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    before, after, x = jnp.split(total.astype(state.rings.dtype), 3, -1)
    own = (state.rings[layer], state.tails[layer])
    place = (places.lane, places.position)
    y, written = short_conv((before, after), x, taps[layer].T, None, own, place, places.page_table)
    return y, ConvState(*(whole.at[layer].set(part) for whole, part in zip(state, written, strict=True)))


def _gpu(
    parts: jax.Array, taps: jax.Array, state: ConvState, places: ConvPlaces, layer: jax.Array, count: jax.Array
) -> tuple[jax.Array, ConvState]:
    from tfjax.kernels.gpu import conv_step as gpu

    return gpu.conv_step(parts, taps, state, places, layer, count)


ROUTES: dict[
    Route,
    Callable[[jax.Array, jax.Array, ConvState, ConvPlaces, jax.Array, jax.Array], tuple[jax.Array, ConvState]],
] = {Route.REFERENCE: _reference, Route.PALLAS_GPU: _gpu}
