"""A target's dense forward against its served form, and targets that have none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.train import served, tiny_lfm2, tiny_run
from tfjax.checkpoints import open_checkpoint
from tfjax.models import llama
from tfjax.models.config import ConfigError
from tfjax.models.registry import family_for
from tfjax.train.dense_target import DenseTarget, read_target, target_shape
from tfjax.train.small_dense import places, product, rms_norm

TOKENS = [4, 200, 17, 17, 3, 99]


def states(target: DenseTarget, taps: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    shape, weights = target
    token = jnp.asarray([TOKENS])
    at = places(jnp.ones_like(token), jnp.arange(len(TOKENS))[None])
    hidden, features = shape.forward(weights.body, shape.config, token, at, taps)
    return hidden[0], features[0]


@pytest.mark.parametrize("tied", [True, False])
def test_a_llamas_last_states_give_its_served_logits(tmp_path: Path, tied: bool) -> None:
    target = read_target(open_checkpoint(tiny_run.write_target(tmp_path, tie_word_embeddings=tied)))
    hidden, _ = states(target, (0,))
    found = product(rms_norm(hidden, target.weights.norm, target.shape.norm_eps), target.weights.head)
    expected = served.logits(served.load(tmp_path, llama.FAMILY), llama.FAMILY, TOKENS)
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(np.asarray(found, np.float32), expected, atol=0.05 * np.abs(expected).max())


def test_features_are_the_stream_after_the_tapped_layers_in_their_order(tmp_path: Path) -> None:
    target = read_target(open_checkpoint(tiny_run.write_target(tmp_path)))
    hidden, features = states(target, (1, 0))
    last, first = jnp.split(features, 2, -1)
    np.testing.assert_array_equal(last, hidden)
    alone = target.weights.body[0], jax.tree.map(lambda stacked: stacked[:1], target.weights.body[1])
    short = DenseTarget(target.shape, target.weights._replace(body=alone))
    np.testing.assert_array_equal(first, states(short, (0,))[0])


def test_the_shape_is_the_checkpoints(tmp_path: Path) -> None:
    shape = target_shape(open_checkpoint(tiny_run.write_target(tmp_path)))
    assert (shape.vocab, shape.hidden, shape.layers) == (260, 24, 2)
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (4, 2, 8)
    assert (shape.context, shape.rope.theta, shape.norm_eps) == (256, 10000.0, 1e-5)


@pytest.mark.parametrize("form", ["experts", "no expert bias", "dense"])
def test_an_lfm2s_last_states_give_its_served_logits(tmp_path: Path, form: str) -> None:
    checkpoint = open_checkpoint(lfm2(tmp_path, form))
    target = read_target(checkpoint, jnp.float32)
    hidden, features = states(target, (2,))
    np.testing.assert_array_equal(hidden, features)
    found = product(rms_norm(hidden, target.weights.norm, target.shape.norm_eps), target.weights.head)
    family = family_for(checkpoint.architecture)
    expected = served.logits(served.load(tmp_path, family, jnp.float32), family, TOKENS)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def lfm2(directory: Path, form: str) -> Path:
    if form == "experts":
        return tiny_lfm2.write_model(directory)
    if form == "no expert bias":
        return tiny_lfm2.write_model(directory, use_expert_bias=False)
    config = replace(tiny_lfm2.CONFIG, dense_layers=tiny_lfm2.CONFIG.layers)
    routing = [key for key in config.to_hf() if "expert" in key or key.startswith(("moe", "routed", "norm_topk"))]
    dropped = dict.fromkeys([*routing, "num_dense_layers"])
    dense = {"architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "block_auto_adjust_ff_dim": False}
    return tiny_lfm2.write_model(directory, config, **dropped, **dense)


def test_an_lfm2s_shape_is_the_checkpoints(tmp_path: Path) -> None:
    shape = target_shape(open_checkpoint(lfm2(tmp_path, "experts")))
    config = tiny_lfm2.CONFIG
    assert (shape.vocab, shape.hidden, shape.layers, shape.context) == (300, 32, 3, 256)
    assert (shape.config, shape.drafter) == (config.shape, "Lfm2DSparkDraftModel")


def test_an_lfm2_with_biased_convolutions_is_refused(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tiny_lfm2.write_model(tmp_path, conv_bias=True))
    with pytest.raises(ConfigError, match="conv_bias"):
        target_shape(checkpoint)


def test_a_target_with_biases_is_refused(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tiny_run.write_target(tmp_path, attention_bias=True))
    with pytest.raises(ConfigError, match="biases"):
        target_shape(checkpoint)
