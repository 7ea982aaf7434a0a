"""DSpark in stacks: the oracle's drafts, the modules' rows and caches, and both ways between the two forms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.models.dspark_stacked import StackedStreams, stacked_form
from tests.models.dspark_streams import PROMPTS, BlockStreams, random_pair
from tests.models.test_dspark import ANCHORS, SHAPES, agree, expected, random_features
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.routes import Route
from tfjax.models import stacked_dspark
from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.models.dspark import FAMILY
from tfjax.models.stacked_dspark import StackedDSpark


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_block_is_the_oracles(shape: Any) -> None:
    pair, features = random_pair(shape), random_features(shape)
    streams = StackedStreams(stacked_form(pair.module), len(PROMPTS))
    streams.absorb(features, [0] * len(PROMPTS))
    assert agree(streams.block(ANCHORS, PROMPTS), expected(pair, features))


@pytest.mark.parametrize("name", ["as LiquidAI's", "norm after rotation", "one query head, block of 1"])
def test_rows_and_cache_are_the_modules(name: str) -> None:
    """Keys and values of a reduced group, whose rows of the stack are copied, too."""
    shape = SHAPES[name]
    pair, features = random_pair(shape), random_features(shape)
    found = StackedStreams(stacked_form(pair.module), len(PROMPTS))
    wanted = BlockStreams(pair.module, len(PROMPTS))
    for streams in (found, wanted):
        streams.absorb(features, [0] * len(PROMPTS))
    for layer, cache in enumerate(wanted.cache):
        for one, other in zip((found.cache.keys[layer], found.cache.values[layer]), cache, strict=True):
            np.testing.assert_allclose(one[1:], other[1:], atol=1e-4)
            assert bool(jnp.all(jnp.isnan(one[0])))
    one, other = found.block(ANCHORS, PROMPTS), wanted.block(ANCHORS, PROMPTS)
    assert agree(one, other)


def test_a_fault_in_the_stacks_shows() -> None:
    shape = SHAPES["as LiquidAI's"]
    pair, features = random_pair(shape), random_features(shape)
    for parameter in ("attention_norm", "qkv", "q_norm", "k_norm", "out", "mlp_norm", "gate_up", "down"):
        module = stacked_form(pair.module)
        stack = getattr(module, parameter)[...]
        setattr(module, parameter, nnx.Param(stack.at[-1].set(stack[-1, ::-1])))
        streams = StackedStreams(module, len(PROMPTS))
        streams.absorb(features, [0] * len(PROMPTS))
        assert not agree(streams.block(ANCHORS, PROMPTS), expected(pair, features)), parameter


@pytest.mark.parametrize("name", ["as LiquidAI's", "no norm", "reduced, Markov head too"])
def test_modules_become_stacks_and_stacks_modules(name: str) -> None:
    module = random_pair(SHAPES[name]).module
    back = stacked_dspark.unstacked(stacked_form(module))
    found, wanted = (dict(nnx.to_flat_state(nnx.state(each))) for each in (back, module))
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_array_equal(found[key].get_value(), value.get_value())


@pytest.mark.parametrize("order", list(QKNorm))
def test_stacks_hold_every_tensor_in_their_shapes(order: QKNorm) -> None:
    config = replace(random_pair(SHAPES["as LiquidAI's"]).module.config, qk_norm=order, own_embedding=True)
    found, own = stacked_dspark.sources(config), FAMILY.sources(config)
    assert sorted(part.name for parts in found.values() for part in parts) == sorted(
        part.name for parts in own.values() for part in parts
    )
    module = nnx.eval_shape(lambda: StackedDSpark(config, jnp.bfloat16, Route.REFERENCE))
    flat: dict[Any, Any] = dict(nnx.to_flat_state(nnx.state(module)))
    for path, parts in found.items():
        assert sum(int(np.prod(part.shape)) for part in parts) == flat[tuple(path.split("."))].get_value().size, path


def test_the_cache_has_the_modules_bytes() -> None:
    config = random_pair(SHAPES["no norm"]).module.config
    cache = stacked_dspark.empty_cache(config, 3, PAGE_ROWS, 2, jnp.bfloat16)
    whole = sum(pool.nbytes for pool in jax.tree.leaves(cache))
    assert whole == 3 * PAGE_ROWS * FAMILY.cache_bytes_per_position(config, jnp.dtype(jnp.bfloat16))
    assert cache.keys.shape == (config.layers, 3, config.kv_heads, PAGE_ROWS, config.head_dim)
    assert FAMILY.stacked is stacked_dspark.STACKED
    assert stacked_dspark.tile_rows(config) == 32
