"""What a cache holds of one stream, position by position, so that two of them can be compared bit for bit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.rope_write import Pools
from tfjax.kernels.short_conv import RING
from tfjax.models.rows import ConvCache, LayerCache


def rows_by_position(
    cache: Pools | Iterable[LayerCache | ConvCache], pages: Sequence[int], lane: int, stop: int
) -> dict[str, NDArray[np.uint8]]:
    """Bytes of every part of the cache at positions 0..stop - 1, which is how far the stream was computed.

    Zeros stand where a convolution keeps nothing of a position any more.

    Shapes: each uint8 [stop, bytes].
    """
    found: dict[str, NDArray[np.uint8]] = {}
    for index, layer in enumerate(_layers(cache)):
        if isinstance(layer, ConvCache):
            found[f"cache[{index}].inputs"] = _inputs(layer, pages, lane, stop)
        else:
            for name, pool in layer._asdict().items():
                rows = np.asarray(pool[np.asarray(pages, int)]).swapaxes(1, 2)
                found[f"cache[{index}].{name}"] = _bytes(rows.reshape(-1, *rows.shape[2:])[:stop])
    return found


def _layers(cache: Pools | Iterable[LayerCache | ConvCache]) -> Iterable[LayerCache | ConvCache]:
    """One cache a layer, also where the layers lie in one array."""
    return (LayerCache(*layer) for layer in zip(*cache, strict=True)) if isinstance(cache, Pools) else cache


def _inputs(layer: ConvCache, pages: Sequence[int], lane: int, stop: int) -> NDArray[np.uint8]:
    ring, tails = np.asarray(layer.ring[lane]), np.asarray(layer.tails)
    position, slots = np.arange(stop), tails.shape[1]
    slot = position % PAGE_ROWS - (PAGE_ROWS - slots)
    found = np.zeros((stop, ring.shape[-1]), ring.dtype)
    in_ring = (slot < 0) & (position >= stop - RING)
    found[in_ring] = ring[position[in_ring] % RING]
    in_tail = slot >= 0
    found[in_tail] = tails[np.asarray(pages, int)[position[in_tail] // PAGE_ROWS], slot[in_tail]]
    return _bytes(found)


def _bytes(rows: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
