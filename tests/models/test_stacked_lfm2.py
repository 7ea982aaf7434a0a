"""The stacked form of an LFM2 gives what its modules give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.tiny import Part
from tests.models.tiny_lfm2 import EXPERTS, MOE, Lfm2Streams, random_lfm2
from tests.models.tiny_stacked_lfm2 import (
    ALL_EXPERTS,
    ATTENTION,
    CONVOLUTIONS,
    DENSE,
    MIXED,
    StackedStreams,
    stacked_form,
)
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.routes import Route, Unsupported
from tfjax.models import lfm2
from tfjax.models.lfm2_config import Lfm2Config
from tfjax.models.stacked_lfm2 import STACKED, StackedLfm2

F32 = jnp.dtype(jnp.float32)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
"""In float32 the forms differ in the order of their sums alone."""

slow = pytest.mark.slow
CONFIGS = [
    pytest.param(MIXED, id="every kind"),
    pytest.param(DENSE, id="dense, untied, four taps", marks=slow),
    pytest.param(ALL_EXPERTS, id="experts alone", marks=slow),
    pytest.param(CONVOLUTIONS, id="no attention", marks=slow),
    pytest.param(ATTENTION, id="no convolution", marks=slow),
]


def run(streams: Any) -> Any:
    """A prompt past a page, a window that begins another stream beside it, and one that mixes both."""
    streams.forward(128, Part(0, 0, 66), tile_rows=128)
    streams.forward(8, Part(0, 66, 69), Part(1, 0, 2))
    streams.forward(8, Part(1, 2, 5), Part(0, 69, 73))
    return streams


def cached_layers(streams: Any, stop: int) -> list[Any]:
    """Each layer's cache of stream 0: those that attend, then the convolutions."""
    layers = sorted(streams.cache, key=lambda layer: hasattr(layer, "tails"))
    page = streams.page_table[streams.lanes[0]]
    lane = streams.lanes[0]
    found = []
    for layer in layers:
        if hasattr(layer, "tails"):
            # The page's last inputs are in its tail, the others in the ring.
            found.append(np.asarray(layer.tails)[page[0]])
            found.append(np.asarray(layer.ring)[lane, PAGE_ROWS:stop])
        else:
            found += [np.asarray(pool)[page[:2]].swapaxes(1, 2).reshape(2 * PAGE_ROWS, -1)[:stop] for pool in layer]
    return found


@pytest.mark.parametrize("config", CONFIGS)
def test_logits_and_cache(config: Lfm2Config) -> None:
    model = random_lfm2(config, jnp.float32)
    wanted, found = run(Lfm2Streams(model)), run(StackedStreams(stacked_form(model)))
    assert wanted.logits.keys() == found.logits.keys()
    for place, row in wanted.logits.items():
        np.testing.assert_allclose(found.logits[place], row, **CLOSE)
    both = cached_layers(wanted, 73), cached_layers(found, 73)
    assert len(both[0]) == len(both[1]) == 2 * config.layers
    for one, other in zip(*both, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(other, one, **CLOSE)


def first_forward(model: Any, streams: Any = StackedStreams, **changes: Any) -> Any:
    """Hidden rows of a forward of eight rows and features."""
    made = streams(model)
    return made, model(made.cache, made.rows(8, Part(0, 0, 6)), tile_rows=4, **changes)


@pytest.fixture(scope="module")
def sound() -> Any:
    return random_lfm2(MIXED, jnp.float32)


def test_features_after_unrolled_and_repeated_layers(sound: Any) -> None:
    taps = (6, 0, 3, 2, 4)
    wanted, found = (
        first_forward(model, streams, taps=taps)[1]
        for model, streams in ((sound, Lfm2Streams), (stacked_form(sound), StackedStreams))
    )
    assert found.features.shape == (8, len(taps) * MIXED.hidden)
    np.testing.assert_allclose(found.features[:6], wanted.features[:6], **CLOSE)
    np.testing.assert_allclose(found.hidden[:6], wanted.hidden[:6], **CLOSE)


def test_rows_past_the_count_leave_pages_alone(sound: Any) -> None:
    """Those of the scratch lane are written to no page of keys, and to no lane but their own."""
    streams, done = first_forward(stacked_form(sound))
    keys, rings = np.asarray(done.cache.pools.keys), np.asarray(done.cache.conv.rings)
    assert keys.shape == streams.cache.pools.keys.shape
    assert np.isnan(keys[:, 0]).all()
    own = streams.page_table[0, 0]
    assert np.isfinite(keys[:, own, :, :6]).all()
    assert np.isfinite(rings[:, 0, :6]).all()
    assert np.isnan(rings[:, 1:-1]).all()


def test_a_cache_tells_its_layers() -> None:
    cache = STACKED.empty_cache(MIXED, 5, PAGE_ROWS, 3, F32)
    layers = list(cache)
    assert [type(layer).__name__ for layer in layers] == ["LayerCache"] * 3 + ["ConvCache"] * 4
    apart = lfm2.empty_cache(MIXED, 5, PAGE_ROWS, 3, F32)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(cache)) == sum(leaf.nbytes for leaf in jax.tree.leaves(apart))
    assert {leaf.shape for leaf in jax.tree.leaves(layers)} == {leaf.shape for leaf in jax.tree.leaves(apart)}


@pytest.mark.parametrize(("heads", "kv_heads", "rows"), [(32, 8, 16), (4, 2, 32), (8, 1, 8)])
def test_tiles_are_blocks_of_attention(heads: int, kv_heads: int, rows: int) -> None:
    assert STACKED.tile_rows(replace(MOE, heads=heads, kv_heads=kv_heads)) == rows


def test_biases_are_refused() -> None:
    with pytest.raises(Unsupported, match="conv_bias"):
        StackedLfm2(replace(MOE, conv_bias=True), F32, Route.REFERENCE)


def swapped_gates(model: StackedLfm2) -> None:
    whole = model.expert_gate_up[...]
    model.expert_gate_up[...] = jnp.concatenate([whole[:, EXPERTS.inner :], whole[:, : EXPERTS.inner]], 1)


def experts_one_layer_off(model: StackedLfm2) -> None:
    model.expert_down[...] = jnp.roll(model.expert_down[...], EXPERTS.count, 0)


def experts_one_off(model: StackedLfm2) -> None:
    model.expert_gate_up[...] = jnp.roll(model.expert_gate_up[...], 1, 0)


def taps_reversed(model: StackedLfm2) -> None:
    model.taps[...] = model.taps[...][:, ::-1]


def bias_forgotten(model: StackedLfm2) -> None:
    model.router_bias[...] = jnp.zeros_like(model.router_bias[...])


def norms_one_layer_off(model: StackedLfm2) -> None:
    model.q_norm[...] = jnp.roll(model.q_norm[...], 1, 0)


FAULTS = [swapped_gates, experts_one_layer_off, experts_one_off, taps_reversed, bias_forgotten, norms_one_layer_off]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_stack_in_another_order_shows(sound: Any, fault: Callable[[Any], None]) -> None:
    """So that the comparison with the modules would find it."""
    spoilt = stacked_form(sound)
    fault(spoilt)
    wanted, found = (np.asarray(first_forward(model)[1].hidden)[:6] for model in (stacked_form(sound), spoilt))
    assert np.abs(wanted - found).max() > 0.05
