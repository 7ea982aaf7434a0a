"""Pages of all layers in one array, and one layer's after another's."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from tfjax.kernels.rope_write import Pools
from tfjax.models.stacked_pools import by_layer, empty_pools, flat_pools

LAYERS, PAGES = 3, 5


def numbered() -> Pools:
    """Pages of which none is like another."""
    pools = empty_pools(LAYERS, PAGES, 2, 4, 6, jnp.dtype(jnp.float32))
    assert {(pool.shape, bool(pool.any())) for pool in pools} == {((LAYERS, PAGES, 2, 4, 6), False)}
    keys, values = (jnp.arange(pool.size, dtype=pool.dtype).reshape(pool.shape) for pool in pools)
    return Pools(keys, values + keys.size)


def test_a_layers_pages_follow_those_of_the_layer_before() -> None:
    pools = numbered()
    for before, pool in zip(pools, flat_pools(pools), strict=True):
        for layer, page in np.ndindex(LAYERS, PAGES):
            assert np.array_equal(pool[layer * PAGES + page], before[layer, page])


def test_they_come_back_as_they_were() -> None:
    pools = numbered()
    for before, pool in zip(pools, by_layer(flat_pools(pools), pools), strict=True):
        assert np.array_equal(pool, before)
