"""The rows of one forward, laid end to end whatever streams they belong to, and what a forward gives back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles


class Rows(NamedTuple):
    """Flat rows and where their keys and values lie.

    Padding rows belong to the scratch lane, whose pages are all page 0.

    Attributes:
        token: int32 [R].
        lane: int32 [R].
        position: int32 [R], absolute position of the token in its stream.
        tiles: the rows grouped by lane.
        page_table: int32 [lanes, pages], the page of every run of PAGE_ROWS positions.
    """

    token: jax.Array
    lane: jax.Array
    position: jax.Array
    tiles: Tiles
    page_table: jax.Array

    @property
    def used(self) -> jax.Array:
        """int32 [], how many rows stand before the scratch lane's, which are behind all others."""
        return jnp.sum(self.lane != len(self.page_table) - 1, dtype=jnp.int32)

    @property
    def page(self) -> jax.Array:
        """int32 [R], the page that holds each row."""
        return self.page_table[self.lane, self.position // PAGE_ROWS]

    @property
    def slot(self) -> jax.Array:
        """int32 [R], each row's place in its page."""
        return self.position % PAGE_ROWS


class LayerCache(NamedTuple):
    """One attention layer's paged cache. Shapes: keys, values [P, K, PAGE_ROWS, H]; page 0 is scratch."""

    keys: jax.Array
    values: jax.Array


class ConvCache(NamedTuple):
    """One short convolution's gated inputs, each at the place that its position gives (see kernels/short_conv.py).

    Shapes: ring [lanes, RING, D], the last lane being scratch; tails [P, C - 1, D], page 0 being scratch.
    """

    ring: jax.Array
    tails: jax.Array


class Forward(NamedTuple):
    """What a model's forward gives.

    Attributes:
        hidden: [R, D], after the final norm.
        cache: what the model was given, with the rows written.
        features: [R, taps * D], the residual stream after each tapped layer in the order of the taps; None without.
    """

    hidden: jax.Array
    cache: Any
    features: jax.Array | None


def tapped(after: Sequence[jax.Array], taps: Sequence[int]) -> jax.Array | None:
    """Features of a forward: the residual streams after the tapped layers side by side, None where nothing is tapped.

    Shapes: each of `after` [R, D], one a layer -> [R, taps * D].
    """
    return jnp.concatenate([after[layer] for layer in taps], -1) if taps else None
