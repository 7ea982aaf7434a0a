"""Continuations against the dense forward: greedy ones token by token, drawn ones by their frequencies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tests.train import tiny_lfm2
from tfjax.train import lfm2_dense
from tfjax.train.lfm2_sample import continue_text
from tfjax.train.small_dense import rms_norm
from tfjax.train.target_model import one_stream

CONFIG = tiny_lfm2.CONFIG
WEIGHTS = tiny_lfm2.weights()
LENGTH = 14


def sample(given: NDArray[np.int32], length: list[int], temperature: list[float], seed: int = 0) -> NDArray[np.int32]:
    found = continue_text(
        WEIGHTS,
        WEIGHTS.embedding,
        jnp.asarray(given),
        jnp.asarray(length),
        jnp.asarray(temperature),
        jax.random.key(seed),
        CONFIG.shape,
    )
    return np.asarray(found)


@jax.jit
def logits(token: jax.Array) -> jax.Array:
    x = WEIGHTS.embedding[token]
    hidden = lfm2_dense.run_layers(x, WEIGHTS.layers, CONFIG.shape, one_stream(*token.shape)).hidden
    return rms_norm(hidden, WEIGHTS.norm, CONFIG.norm_eps) @ WEIGHTS.embedding.T


def given(rows: int) -> NDArray[np.int32]:
    return np.random.default_rng(2).integers(0, CONFIG.vocab, (rows, LENGTH)).astype(np.int32)


def test_greedy_rows_are_the_likeliest_tokens_after_what_was_given() -> None:
    lengths = [1, 4, 9]
    found = sample(given(3), lengths, [0.0] * 3)
    likeliest = np.asarray(jnp.argmax(logits(jnp.asarray(found)), -1))
    for row, length in enumerate(lengths):
        np.testing.assert_array_equal(found[row, :length], given(3)[row, :length])
        np.testing.assert_array_equal(found[row, length:], likeliest[row, length - 1 : -1])


def test_draws_have_the_models_frequencies() -> None:
    rows = 2000
    start = np.repeat(given(1), rows, 0)
    temperature = 0.7
    found = sample(start, [LENGTH - 1] * rows, [temperature] * rows)[:, -1]
    expected = np.asarray(jax.nn.softmax(logits(jnp.asarray(start[:1]))[0, -2] / temperature))
    top = int(expected.argmax())
    assert 0.05 < expected[top] < 0.95
    deviation = np.sqrt(expected[top] * (1 - expected[top]) / rows)
    assert abs((found == top).mean() - expected[top]) < 4 * deviation


def test_the_key_decides_the_draws_and_rows_draw_apart() -> None:
    start = np.repeat(given(1), 8, 0)
    first, second, again = (sample(start, [2] * 8, [3.0] * 8, seed) for seed in (0, 1, 0))
    np.testing.assert_array_equal(first, again)
    assert (first != second).any()
    assert len({row.tobytes() for row in first}) == 8


def test_places_draw_apart() -> None:
    found = sample(given(4), [1] * 4, [1e6] * 4)
    assert all(len(set(row.tolist())) > LENGTH // 2 for row in found)
