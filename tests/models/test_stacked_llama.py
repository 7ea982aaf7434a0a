"""The stacked form of a Llama gives what its modules give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.models.tiny import TINY, Part, Streams, random_llama
from tests.models.tiny_stacked import stacked_form
from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles
from tfjax.kernels.routes import Route, Unsupported
from tfjax.models import llama
from tfjax.models.llama import empty_cache
from tfjax.models.rows import Rows
from tfjax.models.stacked_llama import (
    STACKED,
    StackedLlama,
    forward,
    logits,
    sources,
    stacked,
    tile_rows,
    unstacked,
)
from tfjax.models.stacked_pools import flat_pools

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
    pools = flat_pools(STACKED.empty_cache(CONFIG, PAGES, PAGE_ROWS, 3, jnp.dtype(jnp.float32)))
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
    for bias in ("attention_bias", "mlp_bias"):
        with pytest.raises(Unsupported, match="biases"):
            StackedLlama(replace(CONFIG, **{bias: True}), jnp.dtype(jnp.float32), Route.REFERENCE)


@pytest.mark.parametrize("tied", [True, False])
def test_the_module_gives_what_the_other_form_gives(tied: bool) -> None:
    """A prompt and a window behind it. In float32 the forms differ in the order of their sums alone."""
    model = random_llama(replace(CONFIG, tied=tied), jnp.float32)
    forms = (Streams(model), Streams(stacked_form(model), empty_cache=STACKED.empty_cache))
    for streams in forms:
        streams.forward(128, Part(0, 0, 100))
        streams.forward(8, Part(0, 100, 103), Part(1, 0, 2))
    wanted, found = (streams.logits for streams in forms)
    assert wanted.keys() == found.keys()
    for place, row in wanted.items():
        np.testing.assert_allclose(found[place], row, rtol=2e-3, atol=2e-3)


def test_rows_past_the_count_leave_the_cache_alone() -> None:
    """Those of the scratch lane are written nowhere, not even to its page."""
    model = stacked_form(random_llama(CONFIG, jnp.float32))
    cache = STACKED.empty_cache(CONFIG, PAGES, PAGE_ROWS, 3, jnp.dtype(jnp.float32))
    written = model(cache, rows_of(0), tile_rows=TILE_ROWS).cache
    assert written.keys.shape == (CONFIG.layers, PAGES, CONFIG.kv_heads, PAGE_ROWS, CONFIG.head_dim)
    assert not np.asarray(written.keys[:, 0]).any()
    assert all(np.asarray(written.keys[layer, 1]).any() for layer in range(CONFIG.layers))


@pytest.mark.parametrize("tied", [True, False])
def test_back_to_modules(tied: bool) -> None:
    """Bit for bit; the stacks are freed, embedding and head are shared."""
    model = random_llama(replace(CONFIG, tied=tied), jnp.bfloat16)
    form = stacked_form(model)
    embedding, stack = form.embedding[...], form.gate_up[...]
    back = unstacked(form)
    wanted, found = (nnx.to_flat_state(nnx.state(module)) for module in (model, back))
    assert [path for path, _ in wanted] == [path for path, _ in found]
    for (_, one), (_, other) in zip(wanted, found, strict=True):
        assert np.array_equal(np.asarray(one[...], np.float32), np.asarray(other[...], np.float32))
    assert stack.is_deleted()
    assert back.embedding[...] is embedding


def test_sources_are_those_of_the_modules_in_the_stacks_order() -> None:
    for tied in (True, False):
        config = replace(CONFIG, tied=tied)
        found = sources(config)
        assert {part for parts in found.values() for part in parts} == {
            part for parts in llama.sources(config).values() for part in parts
        }
        first = ((0, "q"), (0, "k"), (0, "v"), (1, "q"))
        assert [part.name for part in found["qkv"]][:4] == [
            f"model.layers.{layer}.self_attn.{part}_proj.weight" for layer, part in first
        ]
        assert found["attention_norm"][-1].name == "model.norm.weight"
        assert ("head" in found) == (not tied)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "rows"), [(9, 3, 16), (32, 8, 16), (8, 1, 8), (4, 4, 64), (5, 1, 8), (65, 1, 64)]
)
def test_tiles_are_blocks_of_attention(heads: int, kv_heads: int, rows: int) -> None:
    """Where no block fits the kernels are refused, and the reference takes any tile."""
    assert tile_rows(replace(CONFIG, heads=heads, kv_heads=kv_heads)) == rows
