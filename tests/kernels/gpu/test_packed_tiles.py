"""Registers of an expanded run: a thread's codes stand where the joined layout says that its values do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tfjax.kernels.gpu.packed_tiles import RUN, RunForm, _group_layout


def held(layout: Any, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Which elements each thread holds. Shape: [warps, lanes, registers, vector], of flat indices."""
    tiled = layout.to_mgpu()
    elements = np.arange(int(np.prod(shape))).reshape(shape)
    for tile in tiled.tiling.tiles:
        lead = elements.ndim - len(tile)
        split = [x for size, t in zip(elements.shape[lead:], tile, strict=True) for x in (size // t, t)]
        assert all(size % t == 0 for size, t in zip(elements.shape[lead:], tile, strict=True))
        order = [*range(lead), *range(lead, elements.ndim + len(tile), 2), *range(lead + 1, lead + 2 * len(tile), 2)]
        elements = elements.reshape(*elements.shape[:lead], *split).transpose(order)
    threads = [d for d in (*tiled.warp_dims, *tiled.lane_dims) if isinstance(d, int)]
    last = [*threads, tiled.vector_dim]
    rest = [d for d in range(-elements.ndim, 0) if d not in last]
    sizes = [elements.shape[d] for d in threads]
    return elements.transpose([d + elements.ndim for d in (*threads, *rest, tiled.vector_dim)]).reshape(
        *sizes, -1, elements.shape[tiled.vector_dim]
    )


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("columns", [64, 128])
def test_joining_moves_nothing(bits: int, columns: int) -> None:
    form = RunForm(columns, bits, 64)
    spread = held(form.spread, (columns, form.words, form.codes))
    assert np.array_equal(spread, held(form.joined, (columns, RUN)))
    assert np.array_equal(np.sort(spread.reshape(-1)), np.arange(columns * RUN))


@pytest.mark.parametrize("groups", [1, 3, 8, 9, 21, 28, 56])
def test_staging_takes_every_group_once(groups: int) -> None:
    found = held(_group_layout(groups), (64, groups))
    assert np.array_equal(np.sort(found.reshape(-1)), np.arange(64 * groups))
