"""A hint: which weights are read next, so that memory need not rest while a kernel that reads little runs."""

from __future__ import annotations

from typing import NamedTuple

import jax


class Ahead(NamedTuple):
    """Part of one layer's matrix that a device may bring near. It changes no result, and the reference ignores it.

    Attributes:
        weight: [L, out, in].
        layer: int32 [].
        split: parts in which the product walks its inner axis; each part's first columns are brought first.
        most_bytes: how much to bring at most.
    """

    weight: jax.Array
    layer: jax.Array
    split: int
    most_bytes: int
