from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from benchmarks.shapes import SHAPES, Shape, random_drafter, random_target, shrunk


def published(name: str) -> Shape:
    return next(shape for shape in SHAPES if shape.name == name)


def test_the_smallest_has_the_published_number_of_parameters() -> None:
    assert published("LFM2.5-1.2B").target_bytes == 2 * 1_170_340_608


@pytest.mark.parametrize(
    ("name", "millions"), [("LFM2.5-1.2B", 295.7), ("LFM2.5-2.6B", 327.7), ("LFM2.5-24B-A2B", 327.7)]
)
def test_drafters_have_about_the_published_number(name: str, millions: float) -> None:
    """The table of tokens and two numbers in float32 come on top."""
    assert published(name).drafter_bytes / 2e6 == pytest.approx(millions, rel=0.002)


def test_the_largest_has_about_the_published_number_and_says_what_is_assumed() -> None:
    shape = published("LFM2.5-24B-A2B")
    assert shape.target_bytes / 2e9 == pytest.approx(23.97, rel=0.001)
    assert shape.assumed
    assert [layer for layer, attends in enumerate(shape.target.attends) if attends] == list(range(2, 40, 4))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_shrunk_one_has_the_same_kinds_of_layers(shape: Shape) -> None:
    small = shrunk(shape)
    assert set(small.target.attends) == {True, False}
    assert (small.target.experts is None) == (shape.target.experts is None)
    if small.target.experts:
        assert 0 < small.target.dense_layers < small.target.layers
    assert max(small.drafter.taps) < small.target.layers - 1


@pytest.fixture(scope="module")
def small() -> Shape:
    return shrunk(published("LFM2.5-24B-A2B"))


def test_weights_are_random_and_norms_are_ones(small: Shape) -> None:
    state = dict(nnx.to_flat_state(nnx.state(random_target(small).module)))
    values = {".".join(map(str, path)): leaf.get_value() for path, leaf in state.items()}
    assert all(isinstance(value, jax.Array) for value in values.values())
    for name, value in values.items():
        if name.endswith("norm.weight"):
            assert bool((value == 1).all()), name
        elif name.endswith("bias"):
            assert not value.any(), name
        else:
            assert 0.01 < float(jnp.std(value.astype(jnp.float32))) < 0.03, name
    experts = values["layers.3.feed_forward.gate_up"]
    assert not bool((experts[0] == experts[1]).all())


def test_the_drafter_shares_embedding_and_head(small: Shape) -> None:
    target = random_target(small)
    drafter = random_drafter(small, target)
    module, own = drafter.loaded.module, target.module
    assert module.embedding[...] is own.embedding[...]  # type: ignore[attr-defined]
    assert module.head[...] is own.head_weight  # type: ignore[attr-defined]
    assert small.weight_bytes == target.weight_bytes + drafter.weight_bytes
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(nnx.state(module)))
