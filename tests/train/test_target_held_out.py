"""Loss and agreement on held-out text, every row once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.train import tiny_lfm2
from tfjax.train import target_held_out
from tfjax.train.target_held_out import measure
from tfjax.train.target_model import logits, random_params, zero_biases
from tfjax.train.target_step import TrainState

CONFIG = tiny_lfm2.CONFIG
ROWS = np.random.default_rng(0).integers(0, CONFIG.vocab, (5, 9)).astype(np.uint16)
PARAMS = jax.tree.map(lambda leaf: 3 * leaf, random_params(CONFIG, 1))
STATE = TrainState(PARAMS, zero_biases(CONFIG), (), jnp.zeros((), jnp.int32))


def test_it_is_the_mean_over_all_rows() -> None:
    found = measure(STATE, ROWS, CONFIG.shape, batch=2)
    run = jax.jit(logits, static_argnums=3)
    scores = np.asarray(run(STATE.params, STATE.biases, jnp.asarray(ROWS[:, :-1], jnp.int32), CONFIG.shape).logits)
    label = ROWS[:, 1:, None].astype(int)
    chance = np.take_along_axis(np.exp(scores) / np.exp(scores).sum(-1, keepdims=True), label, -1)
    assert found["tokens"] == 40
    assert found["loss"] == pytest.approx(-np.log(chance).mean(), abs=2e-3)
    assert found["agreement"] == pytest.approx((scores.argmax(-1) == label[..., 0]).mean(), abs=1e-3)


def test_a_batch_more_than_the_rows_is_filled_up() -> None:
    assert measure(STATE, ROWS[:3], CONFIG.shape, batch=8)["tokens"] == 24


def test_it_ends_after_some_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_held_out, "MOST_BATCHES", 2)
    assert measure(STATE, ROWS, CONFIG.shape, batch=2)["tokens"] == 32
