"""The stacked form of a Llama gives what its modules give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.tiny import TINY, random_llama
from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles
from tfjax.kernels.routes import Route, Unsupported
from tfjax.models.llama import empty_cache
from tfjax.models.rows import Rows
from tfjax.models.stacked_llama import empty_pools, forward, logits, stacked

CONFIG = replace(TINY, layers=3)
PAGES, BUCKET, TILE_ROWS = 9, 8, 4


def rows_of(first: int) -> Rows:
    """Three rows of lane 0 from `first` on, two of lane 1 at 70; the rest is scratch."""
    position = np.array([first, first + 1, first + 2, 70, 71, 0, 0, 0], np.int32)
    lane = np.array([0, 0, 0, 1, 1, 2, 2, 2], np.int32)
    start, owner, last = (np.zeros(BUCKET, np.int32) for _ in range(3))
    start[:2], owner[:2], last[:2] = (0, 3), (0, 1), (first + 2, 71)
    table = np.array([[1, 5, 2, 7], [4, 3, 8, 6], [0, 0, 0, 0]], np.int32)
    token = np.random.default_rng(first).integers(0, CONFIG.vocab, BUCKET).astype(np.int32)
    tiles = Tiles(jnp.int32(2), *(jnp.asarray(x) for x in (start, owner, last)))
    return Rows(jnp.asarray(token), jnp.asarray(lane), jnp.asarray(position), tiles, jnp.asarray(table))


@pytest.fixture(scope="module")
def both() -> dict[str, Any]:
    model = random_llama(CONFIG, jnp.float32)
    weights = stacked(model)
    cache = empty_cache(CONFIG, PAGES, PAGE_ROWS, 3, jnp.dtype(jnp.float32))
    pools = empty_pools(CONFIG, PAGES, jnp.dtype(jnp.float32))
    taps = (2, 0)
    step = jax.jit(
        lambda pools, rows: forward(
            CONFIG, weights, pools, rows, jnp.int32(5), tile_rows=TILE_ROWS, route=Route.REFERENCE, taps=taps
        )
    )
    for first in (0, 3):
        rows = rows_of(first)
        wanted = model(cache, rows, tile_rows=TILE_ROWS, taps=taps)
        found = step(pools, rows)
        cache, pools = wanted.cache, found.cache
    return {"wanted": wanted, "found": found, "weights": weights, "model": model}


def test_hidden_rows_and_features(both: dict[str, Any]) -> None:
    for name in ("hidden", "features"):
        wanted, found = (np.asarray(getattr(both[which], name))[:5] for which in ("wanted", "found"))
        assert wanted.shape == found.shape
        np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3)


def test_pages_of_every_layer(both: dict[str, Any]) -> None:
    for which in ("keys", "values"):
        pool = np.asarray(getattr(both["found"].cache, which)).reshape(CONFIG.layers, PAGES, -1)
        for layer, cache in enumerate(both["wanted"].cache):
            wanted = np.asarray(getattr(cache, which)).reshape(PAGES, -1)
            np.testing.assert_allclose(pool[layer, 1:], wanted[1:], rtol=2e-3, atol=2e-3)
            assert np.abs(wanted[1:]).max() > 0


def test_logits(both: dict[str, Any]) -> None:
    found = logits(both["weights"], both["found"].hidden, jnp.int32(5), route=Route.REFERENCE)
    wanted = both["wanted"].hidden @ both["model"].head_weight.T
    np.testing.assert_allclose(found[:5], wanted[:5], rtol=2e-3, atol=2e-3)


def test_biases_are_refused() -> None:
    with pytest.raises(Unsupported, match="--kernels reference"):
        stacked(random_llama(replace(CONFIG, attention_bias=True), jnp.float32))
