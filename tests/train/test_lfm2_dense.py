"""The dense forward against the served one and against plain loops; packed sequences do not see each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.train import served, tiny_lfm2
from tests.train.tiny_lfm2 import CONFIG
from tfjax.checkpoints import open_checkpoint
from tfjax.models.registry import family_for
from tfjax.train import lfm2_dense
from tfjax.train.lfm2_dense import Lfm2Weights, Routing, Run
from tfjax.train.lfm2_names import read_weights
from tfjax.train.small_dense import Places, places, rms_norm
from tfjax.train.target_config import TargetConfig

run_layers = jax.jit(lfm2_dense.run_layers, static_argnums=2)
forward = jax.jit(lfm2_dense.forward, static_argnums=(1, 4))
experts = jax.jit(lfm2_dense.experts, static_argnums=2)
TOKENS = np.random.default_rng(1).integers(0, CONFIG.vocab, 40).astype(np.int32)


def at(segment: list[int], position: list[int]) -> Places:
    return places(jnp.asarray([segment]), jnp.asarray([position]))


def alone(length: int) -> Places:
    return at([1] * length, list(range(length)))


def hidden(tokens: NDArray[np.int32], where: Places) -> NDArray[np.float32]:
    return np.asarray(run(tiny_lfm2.weights(), tokens, where).hidden[0])


def run(weights: Lfm2Weights, tokens: NDArray[np.int32], where: Places, config: TargetConfig = CONFIG) -> Run:
    return run_layers(weights.embedding[jnp.asarray(tokens)[None]], weights.layers, config.shape, where)


@pytest.mark.parametrize("taps", [3, 4])
def test_it_computes_what_is_served(tmp_path: Path, taps: int) -> None:
    config = replace(CONFIG, taps=taps)
    directory = tiny_lfm2.write_model(tmp_path / "model", config)
    checkpoint = open_checkpoint(directory)
    family = family_for(checkpoint.architecture)
    expected = served.logits(served.load(directory, family, jnp.float32), family, TOKENS.tolist())
    weights = read_weights(checkpoint.tensors.infos, checkpoint.tensors.read, jnp.float32)
    found = run(weights, TOKENS, alone(len(TOKENS)), config)
    logits = rms_norm(found.hidden[0], weights.norm, config.norm_eps) @ weights.embedding.T
    np.testing.assert_allclose(logits, expected, atol=1e-4 * np.abs(expected).max())
    assert (np.argmax(logits, -1) == np.argmax(expected, -1)).all()


def test_packed_sequences_are_computed_as_if_alone() -> None:
    where = at([1] * 5 + [2] * 3 + [0, 0], [0, 1, 2, 3, 4, 0, 1, 2, 0, 0])
    packed = hidden(TOKENS[:10], where)
    np.testing.assert_allclose(packed[:5], hidden(TOKENS[:5], alone(5)), atol=1e-5)
    np.testing.assert_allclose(packed[5:8], hidden(TOKENS[5:8], alone(3)), atol=1e-5)


def test_a_later_token_changes_nothing_before_it() -> None:
    other = TOKENS[:8].copy()
    other[5] += 1
    first, second = hidden(TOKENS[:8], alone(8)), hidden(other, alone(8))
    np.testing.assert_array_equal(first[:5], second[:5])
    assert (first[5:] != second[5:]).any(axis=1).all()


def test_features_are_the_tapped_layers_in_the_order_asked_for() -> None:
    weights = tiny_lfm2.weights()
    token, where = jnp.asarray(TOKENS[:6])[None], alone(6)
    last, features = forward(weights, CONFIG.shape, token, where, (1, 0))
    whole = run(weights, TOKENS[:6], where)
    np.testing.assert_array_equal(features, jnp.concatenate([whole.after[1], whole.after[0]], -1))
    np.testing.assert_array_equal(last, whole.after[2])
    assert forward(weights, CONFIG.shape, token, where, ())[1].shape == (1, 6, 0)
    cut = weights._replace(layers=weights.layers[:1])
    np.testing.assert_allclose(run(cut, TOKENS[:6], where).hidden, whole.after[0], atol=1e-5)


def by_hand(x: NDArray[Any], layer: dict[str, NDArray[Any]], routing: Routing) -> tuple[NDArray[Any], NDArray[Any]]:
    """One token after another, one expert after another."""
    found, load = np.zeros_like(x), np.zeros(CONFIG.experts)
    for number, row in enumerate(x):
        score = 1 / (1 + np.exp(-layer["gate"] @ row))
        picked = np.argsort(-(score + layer["expert_bias"]), kind="stable")[: routing.picked]
        weight = score[picked]
        if routing.normalised:
            weight = weight / (weight.sum() + 1e-6)
        for expert, share in zip(picked, weight * routing.scale, strict=True):
            gate, up = layer["w1"][expert] @ row, layer["w3"][expert] @ row
            found[number] += share * (layer["w2"][expert] @ (gate / (1 + np.exp(-gate)) * up))
            load[expert] += 1
    return found, load


@pytest.mark.parametrize("routing", [Routing(2), Routing(3, normalised=False), Routing(1, scale=1.7)])
def test_experts_are_picked_with_the_bias_and_weighted_without_it(routing: Routing) -> None:
    layer = tiny_lfm2.weights().layers[1]
    x = np.random.default_rng(2).normal(0, 1, (12, CONFIG.hidden)).astype(np.float32)
    found, load = experts(jnp.asarray(x)[None], layer, routing)
    expected, counted = by_hand(x, {name: np.asarray(part) for name, part in layer.items()}, routing)
    np.testing.assert_allclose(found[0], expected, atol=1e-4)
    np.testing.assert_array_equal(load, counted)
    biased = {**layer, "expert_bias": jnp.zeros(CONFIG.experts)}
    assert (np.asarray(experts(jnp.asarray(x)[None], biased, routing)[1]) != counted).any()


def test_of_equal_experts_the_first_are_picked() -> None:
    layer = {"gate": jnp.zeros((5, 4)), "expert_bias": jnp.zeros(5)}
    picked, weight = lfm2_dense.route(jnp.ones((1, 1, 4)), layer, Routing(2))
    assert picked[0, 0].tolist() == [True, True, False, False, False]
    np.testing.assert_allclose(weight[0, 0], [0.5, 0.5, 0, 0, 0], atol=1e-5)


def test_the_bias_learns_nothing_by_gradients() -> None:
    layer = tiny_lfm2.weights().layers[1]
    x = jnp.asarray(np.random.default_rng(2).normal(0, 1, (1, 6, CONFIG.hidden)), jnp.float32)
    gradient = jax.grad(lambda layer: jnp.sum(experts(x, layer, Routing(2))[0]))(dict(layer))
    assert not np.asarray(gradient["expert_bias"]).any()
    assert np.asarray(gradient["gate"]).any()
