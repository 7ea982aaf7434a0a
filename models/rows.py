"""The rows of one forward, laid end to end whatever streams they belong to."""

from __future__ import annotations

from typing import NamedTuple

import jax

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
    def page(self) -> jax.Array:
        """int32 [R], the page that holds each row."""
        return self.page_table[self.lane, self.position // PAGE_ROWS]

    @property
    def slot(self) -> jax.Array:
        """int32 [R], each row's place in its page."""
        return self.position % PAGE_ROWS


class LayerCache(NamedTuple):
    """One layer's paged cache. Shapes: keys, values [P, K, PAGE_ROWS, H]; page 0 is scratch."""

    keys: jax.Array
    values: jax.Array
