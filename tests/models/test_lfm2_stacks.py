"""Which layer has what in which stack, read from checkpoints and given back to modules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.models.published_lfm2 import LFM2_1B, LFM2_24B
from tests.models.tiny_lfm2 import random_lfm2
from tests.models.tiny_stacked import KERNELS
from tests.models.tiny_stacked_lfm2 import ALL_EXPERTS, ATTENTION, CONVOLUTIONS, DENSE, MIXED, stacked_form
from tfjax.checkpoints import open_checkpoint
from tfjax.engine.weights import read_model
from tfjax.models import lfm2
from tfjax.models.lfm2_config import Lfm2Config
from tfjax.models.lfm2_stacks import Kind, Number, kinds, numbers, router_columns, shapes, sources, unstacked
from tfjax.models.registry import family_for

GOLDENS = Path(__file__).parent.parent / "goldens"
CONFIGS = [MIXED, DENSE, ALL_EXPERTS, CONVOLUTIONS, ATTENTION]
ONE_OF_EACH = replace(MIXED, attends=(False, True), dense_layers=1)
"""A layer's part of a stack is all of it, and must outlive it."""


def test_kinds_of_layers() -> None:
    assert kinds(MIXED)[:4] == (Kind(False, False), Kind(True, False), Kind(False, True), Kind(True, True))
    assert not any(kind.experts for kind in kinds(DENSE))
    assert not any(kind.experts for kind in kinds(LFM2_1B))
    assert sum(kind.experts for kind in kinds(LFM2_24B)) == 38


def test_a_layers_numbers_count_its_likes() -> None:
    found = numbers(kinds(MIXED))
    assert found[:3] == (Number(0, 0, 0), Number(1, 0, 1), Number(2, 1, 0))
    assert found[-1] == Number(6, 3, 4)


@pytest.mark.parametrize(("experts", "columns"), [(1, 64), (8, 64), (64, 64), (65, 128)])
def test_routers_are_padded(experts: int, columns: int) -> None:
    assert router_columns(experts) == columns


@pytest.mark.parametrize("config", CONFIGS)
def test_stacks_hold_what_the_modules_hold(config: Lfm2Config) -> None:
    """Padding of routers apart, every number once."""
    assert {part.name for parts in sources(config).values() for part in parts} == {
        part.name for parts in lfm2.sources(config).values() for part in parts
    }
    for stack, shape in shapes(config).items():
        if not stack.startswith("router"):
            assert np.prod(shape) == sum(np.prod(part.shape) for part in sources(config)[stack])


def test_tensors_lie_in_the_order_of_layers() -> None:
    found = {stack: [part.name for part in parts] for stack, parts in sources(MIXED).items()}
    assert found["taps"] == [f"model.layers.{layer}.conv.conv.weight" for layer in (0, 2, 4, 6)]
    assert found["out"][:2] == ["model.layers.0.conv.out_proj.weight", "model.layers.1.self_attn.out_proj.weight"]
    experts = "model.layers.2.feed_forward.experts"
    assert found["expert_gate_up"][:3] == [f"{experts}.0.w1.weight", f"{experts}.0.w3.weight", f"{experts}.1.w1.weight"]
    assert found["operator_norm"][-1] == "model.embedding_norm.weight"


def flat(module: nnx.Module) -> dict[Any, Any]:
    return {path: np.asarray(leaf[...], np.float32) for path, leaf in nnx.to_flat_state(nnx.state(module))}


@pytest.mark.parametrize("config", [*CONFIGS, ONE_OF_EACH])
def test_back_to_modules(config: Lfm2Config) -> None:
    """Bit for bit; the stacks are freed, embedding and head are shared."""
    model = random_lfm2(config, jnp.bfloat16)
    form = stacked_form(model)
    embedding, stack = form.embedding[...], form.out[...]
    back = unstacked(form)
    wanted, found = flat(model), flat(back)
    assert wanted.keys() == found.keys()
    for path, value in wanted.items():
        assert np.array_equal(found[path], value), path
    assert stack.is_deleted()
    assert back.embedding[...] is embedding


@pytest.mark.parametrize("name", ["tiny_lfm2_moe", "tiny_lfm2_moe_no_bias", "tiny_lfm2_untied_mqa"])
def test_read_from_a_checkpoint(name: str) -> None:
    """What the modules read, laid in stacks."""
    checkpoint = open_checkpoint(GOLDENS / name)
    family = family_for(checkpoint.architecture)
    config = family.config_from_hf(checkpoint.config)
    apart = read_model(checkpoint, family, config, "float32", lambda phase, share: None)
    stacked = read_model(checkpoint, family, config, "float32", lambda phase, share: None, kernels=KERNELS)
    modules: Any = apart.module
    wanted, found = flat(stacked_form(modules)), flat(stacked.module)
    assert wanted.keys() == found.keys()
    for path, value in wanted.items():
        assert np.array_equal(found[path], value), path


def test_caches_take_what_the_engine_reckons() -> None:
    family = lfm2.FAMILY
    assert family.stacked is not None
    pages, lanes, dtype = 4, 3, jnp.dtype(jnp.bfloat16)
    for config in (MIXED, replace(DENSE, taps=3)):
        cache = family.stacked.empty_cache(config, pages, 64, lanes, dtype)
        leaves = [*cache.pools, cache.conv.tails]
        reckoned = family.cache_bytes_per_position(config, dtype) * pages * 64
        assert 0 <= reckoned - sum(leaf.nbytes for leaf in leaves) < 64 * pages * 2
        assert cache.conv.rings.nbytes == lanes * family.cache_bytes_per_lane(config, dtype)
