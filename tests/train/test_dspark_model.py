"""Parameters: their shapes and first values, and the names under which they are published."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.models.dspark_oracle import Shape
from tests.train import dspark_tiny
from tests.train.dspark_tiny import BATCH, REDUCED
from tfjax.models.dspark_tensors import sources
from tfjax.train.dense_target import DenseTarget
from tfjax.train.dspark_model import from_published, models_of, parameters, published, random_params, shapes, sharpened
from tfjax.train.small_data import Packed

SHAPES = {
    "vanilla": Shape(ids=REDUCED, w1_rows=len(REDUCED)),
    "gated": Shape(markov="gated"),
    "rnn, no norm": Shape(markov="rnn", order="none", layers=3),
}


def target_of(shape: Shape) -> DenseTarget:
    config = dspark_tiny.config_of(shape)
    target, models = dspark_tiny.table_target(config, shape.ids)
    return DenseTarget(target, models.target)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_tensors_are_those_that_serving_reads(shape: Shape) -> None:
    config = dspark_tiny.config_of(shape)
    params = random_params(config, target_of(shape), 1)
    written = {name: value.shape for name, value in published(params)}
    assert written == {part.name: part.shape for parts in sources(config).values() for part in parts}
    assert parameters(config) == sum(leaf.size for leaf in jax.tree.leaves(params))


def test_a_layers_tensors_are_its_own() -> None:
    config = dspark_tiny.config_of(Shape())
    params = dspark_tiny.random_params(config)
    written = dict(published(params))
    np.testing.assert_array_equal(written["layers.1.mlp.gate_proj.weight"], params["layers"]["gate"][1])
    np.testing.assert_array_equal(written["layers.0.self_attn.k_norm.weight"], params["layers"]["k_norm"][0])
    np.testing.assert_array_equal(written["markov_head.markov_w2.weight"], params["markov"]["w2"])


def test_the_heads_say_nothing_yet_and_the_final_norm_is_the_targets() -> None:
    shape = SHAPES["gated"]
    target = target_of(shape)
    params = random_params(dspark_tiny.config_of(shape), target, 1)
    for quiet in (params["markov"]["w2"], *params["confidence"].values(), params["markov"]["gate_bias"]):
        assert not np.asarray(quiet).any()
    np.testing.assert_array_equal(params["norm"], target.weights.norm)
    assert float(jnp.std(params["layers"]["o"])) < 0.6 * float(jnp.std(params["layers"]["q"]))


def test_the_seed_decides() -> None:
    shape = SHAPES["vanilla"]
    one, again, other = (
        random_params(dspark_tiny.config_of(shape), target_of(shape), seed)["fc"] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_the_head_knows_the_draft_vocabulary() -> None:
    shape = SHAPES["vanilla"]
    target = target_of(shape)
    models = models_of(dspark_tiny.config_of(shape), target, np.array(REDUCED, np.int32))
    np.testing.assert_array_equal(models.head_rows, target.weights.head[np.array(REDUCED)])
    assert [int(models.draft_of[token]) for token in (5, 6, 63)] == [1, -1, 13]
    assert [int(models.previous_of[token]) for token in (5, 6)] == [1, -1]
    whole = models_of(dspark_tiny.config_of(Shape(ids=REDUCED)), target, np.array(REDUCED, np.int32))
    assert [int(whole.previous_of[token]) for token in (5, 6)] == [5, 6]


def test_shapes_follow_the_config() -> None:
    found = shapes(dspark_tiny.config_of(SHAPES["rnn, no norm"]))
    assert "q_norm" not in found["layers"]
    assert found["layers"]["k"] == (3, 16, 32)
    assert found["markov"]["joint"] == (48, 64)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_what_is_published_is_read_back(shape: Shape) -> None:
    config = dspark_tiny.config_of(shape)
    params = dspark_tiny.random_params(config)
    tensors = dict(published(params))

    def read(name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        assert tensors[name].shape == shape
        return tensors[name]

    jax.tree.map(np.testing.assert_array_equal, from_published(read, config), params)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_sharpened_drafts_have_larger_logits_and_the_same_confidences(shape: Shape) -> None:
    config = dspark_tiny.config_of(shape)
    _, models = dspark_tiny.table_target(config, shape.ids)
    params = dspark_tiny.random_params(config)
    batch = Packed(*map(jnp.asarray, BATCH))
    features, anchor = models.target.body[1][batch.token], jnp.array([[2, 8], [4, 9]])

    def drafted(params: Any) -> Any:
        return dspark_tiny.drafted(params, models, batch, features, anchor, config)

    (_, logits, sure), (_, sharper, same) = drafted(params), drafted(sharpened(params, config, 1.5))
    np.testing.assert_allclose(sharper, 1.5 * logits, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(same, sure, rtol=1e-4, atol=1e-5)
