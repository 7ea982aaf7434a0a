from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.engine.cached_rows import rows_by_position
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.rope_write import Pools
from tfjax.kernels.short_conv import RING
from tfjax.models.rows import ConvCache, LayerCache

PAGES, LANE = (5, 2, 4, 1), 1


def test_keys_and_values_come_in_the_order_of_positions() -> None:
    keys = np.random.default_rng(0).normal(size=(6, 2, PAGE_ROWS, 3)).astype(np.float32)
    found = rows_by_position([LayerCache(jnp.asarray(keys), jnp.asarray(keys + 1))], PAGES, LANE, 100)
    assert found.keys() == {"cache[0].keys", "cache[0].values"}
    for position in (0, 63, 64, 99):
        row = keys[PAGES[position // PAGE_ROWS], :, position % PAGE_ROWS]
        assert np.array_equal(found["cache[0].keys"][position].view(np.float32), row.reshape(-1))
        assert np.array_equal(found["cache[0].values"][position].view(np.float32), (row + 1).reshape(-1))
    assert found["cache[0].keys"].shape == (100, 2 * 3 * 4)


@pytest.mark.parametrize("stop", [1, 62, 64, 65, 129, 250])
def test_a_convolutions_inputs_come_from_ring_and_tails(stop: int) -> None:
    ring, tails = np.zeros((3, RING, 2), np.float32), np.zeros((6, 2, 2), np.float32)
    for position in range(stop):
        if position % PAGE_ROWS >= PAGE_ROWS - 2:
            tails[PAGES[position // PAGE_ROWS], position % PAGE_ROWS - (PAGE_ROWS - 2)] = position + 1
        else:
            ring[LANE, position % RING] = position + 1
    found = rows_by_position([ConvCache(jnp.asarray(ring), jnp.asarray(tails))], PAGES, LANE, stop)
    rows = found["cache[0].inputs"].view(np.float32)
    in_tail = np.arange(stop) % PAGE_ROWS >= PAGE_ROWS - 2
    kept = in_tail | (np.arange(stop) >= stop - RING)
    assert np.array_equal(rows[:, 0], np.where(kept, np.arange(stop) + 1, 0))


def test_layers_in_one_array_are_those_apart() -> None:
    keys = np.random.default_rng(1).normal(size=(3, 6, 2, PAGE_ROWS, 3)).astype(np.float32)
    apart = rows_by_position([LayerCache(jnp.asarray(x), jnp.asarray(-x)) for x in keys], PAGES, LANE, 100)
    stacked = rows_by_position(Pools(jnp.asarray(keys), jnp.asarray(-keys)), PAGES, LANE, 100)
    assert list(stacked) == list(apart)
    assert all(np.array_equal(stacked[name], apart[name]) for name in apart)
    assert not np.array_equal(stacked["cache[0].keys"], stacked["cache[2].keys"])
