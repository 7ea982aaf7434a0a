"""The stacked form of a Llama gives what its modules give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.engine.packed_models import silent
from tests.engine.test_weights import Tensors, checkpoint_of
from tests.models.tiny import TINY, Part, Streams, random_llama
from tests.models.tiny_stacked import KERNELS, stacked_form
from tests.row_invariance import bits
from tfjax.engine.weights import read_model
from tfjax.kernels.gpu.plans import split_of
from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles
from tfjax.kernels.routes import Route
from tfjax.models import llama
from tfjax.models.llama import Llama, LlamaConfig, empty_cache
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

BIASED = {
    name: replace(CONFIG, attention_bias=attention, mlp_bias=mlp)
    for name, attention, mlp in (("attention", True, False), ("mlp", False, True), ("both", True, True))
}
PARTED = replace(BIASED["both"], hidden=576, inner=1536, heads=9, kv_heads=3, head_dim=64, layers=2)
"""Of sizes whose products are summed in several parts."""


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


def run_through(model: Any, **more: Any) -> Streams:
    """A prompt and a window behind it."""
    streams = Streams(model, **more)
    streams.forward(128, Part(0, 0, 100))
    streams.forward(8, Part(0, 100, 103), Part(1, 0, 2))
    return streams


def assert_agree(found: Streams, wanted: Streams) -> None:
    """In float32 the forms differ in the order of their sums alone."""
    assert wanted.logits.keys() == found.logits.keys()
    for place, row in wanted.logits.items():
        np.testing.assert_allclose(found.logits[place], row, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    "config",
    [CONFIG, replace(CONFIG, tied=False), BIASED["attention"], BIASED["mlp"]],
    ids=["tied", "untied", "attention biases", "mlp biases"],
)
def test_the_module_gives_what_the_other_form_gives(config: LlamaConfig) -> None:
    model = random_llama(config, jnp.float32)
    assert_agree(run_through(stacked_form(model), empty_cache=STACKED.empty_cache), run_through(model))


@pytest.fixture(scope="module")
def parted() -> tuple[Llama, Streams]:
    """A model with biases whose products are summed in several parts, and what its modules give."""
    assert min(split_of(*size) for size in ((576, 960), (576, 576), (1536, 576))) > 1
    model = random_llama(PARTED, jnp.float32)
    return model, run_through(model)


def test_biases_of_products_in_parts(parted: tuple[Llama, Streams]) -> None:
    model, wanted = parted
    assert_agree(run_through(stacked_form(model), empty_cache=STACKED.empty_cache), wanted)


FAULTS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "another layer's": lambda bias: jnp.roll(bias, 1, 0),
    "added twice": lambda bias: 2 * bias,
    "left out": jnp.zeros_like,
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("name", ["qkv_bias", "out_bias", "gate_up_bias", "down_bias"])
def test_a_wrong_bias_would_be_seen(parted: tuple[Llama, Streams], name: str, fault: Any) -> None:
    model, wanted = parted
    form = stacked_form(model)
    setattr(form, name, nnx.Param(fault(getattr(form, name)[...])))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_agree(run_through(form, empty_cache=STACKED.empty_cache), wanted)


def test_many_rows_have_the_bits_that_they_have_among_fewer() -> None:
    model = stacked_form(random_llama(PARTED, jnp.bfloat16))
    few, many = (Streams(model, empty_cache=STACKED.empty_cache) for _ in range(2))
    for start, stop in ((0, 8), (8, 130)):
        few.forward(128, Part(0, start, stop))
    many.forward(256, Part(0, 0, 130))
    for one, other in zip(few.cache, many.cache, strict=True):
        assert np.array_equal(bits(one), bits(other))
    for place, row in few.logits.items():
        assert np.array_equal(bits(many.logits[place]), bits(row)), place


def test_rows_past_the_count_leave_the_cache_alone() -> None:
    """Those of the scratch lane are written nowhere, not even to its page."""
    model = stacked_form(random_llama(CONFIG, jnp.float32))
    cache = STACKED.empty_cache(CONFIG, PAGES, PAGE_ROWS, 3, jnp.dtype(jnp.float32))
    written = model(cache, rows_of(0), tile_rows=TILE_ROWS).cache
    assert written.keys.shape == (CONFIG.layers, PAGES, CONFIG.kv_heads, PAGE_ROWS, CONFIG.head_dim)
    assert not np.asarray(written.keys[:, 0]).any()
    assert all(np.asarray(written.keys[layer, 1]).any() for layer in range(CONFIG.layers))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("config", [CONFIG, BIASED["attention"], BIASED["mlp"]], ids=["plain", "attention", "mlp"])
def test_back_to_modules(config: LlamaConfig, tied: bool) -> None:
    """Bit for bit; the stacks are freed, embedding and head are shared."""
    model = random_llama(replace(config, tied=tied), jnp.bfloat16)
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
        assert not [name for name in found if name.endswith("_bias")]


@pytest.mark.parametrize("config", BIASED.values(), ids=BIASED)
def test_sources_of_biases_follow_those_of_their_products(config: LlamaConfig) -> None:
    found, form = sources(config), StackedLlama(config, jnp.dtype(jnp.float32), Route.REFERENCE)
    biases = [name for name in found if name.endswith("_bias")]
    assert len(biases) == 2 * (config.attention_bias + config.mlp_bias)
    for name in biases:
        product = name.removesuffix("_bias")
        wanted = [part.name.replace(".weight", ".bias") for part in found[product]]
        assert [part.name for part in found[name]] == wanted
        assert getattr(form, name).shape == getattr(form, product).shape[:2]
    assert set(nnx.to_pure_dict(nnx.state(form))) == set(found)


def test_biases_are_read_into_their_stacks() -> None:
    config = BIASED["both"]
    checkpoint = checkpoint_of(config, Tensors(config))
    read = read_model(checkpoint, llama.FAMILY, config, "bfloat16", silent, kernels=KERNELS)
    own = read_model(checkpoint, llama.FAMILY, config, "bfloat16", silent).module
    assert isinstance(own, Llama)
    wanted, found = (nnx.to_pure_dict(nnx.state(module)) for module in (stacked_form(own), read.module))
    assert wanted.keys() == found.keys()
    for name, stack in wanted.items():
        assert np.array_equal(bits(found[name]), bits(stack)), name


@pytest.mark.parametrize(
    ("heads", "kv_heads", "rows"), [(9, 3, 16), (32, 8, 16), (8, 1, 8), (4, 4, 64), (5, 1, 8), (65, 1, 64)]
)
def test_tiles_are_blocks_of_attention(heads: int, kv_heads: int, rows: int) -> None:
    """Where no block fits the kernels are refused, and the reference takes any tile."""
    assert tile_rows(replace(CONFIG, heads=heads, kv_heads=kv_heads)) == rows
