"""A target's dense forward against its served form, and targets that have none."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.train import served, tiny_run
from tfjax.checkpoints import open_checkpoint
from tfjax.models import llama
from tfjax.models.config import ConfigError
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


def test_a_target_with_biases_is_refused(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tiny_run.write_target(tmp_path, attention_bias=True))
    with pytest.raises(ConfigError, match="biases"):
        target_shape(checkpoint)
