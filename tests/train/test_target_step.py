"""The loss against numpy, the schedule, the cut of rows, and balance of experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.train import tiny_lfm2
from tfjax.train.target_model import logits
from tfjax.train.target_step import (
    BALANCE_RATE,
    Learning,
    Metrics,
    Plan,
    Stream,
    TrainState,
    balanced,
    cut,
    imbalance,
    loss,
    make_step,
    rate_at,
)

CONFIG = replace(tiny_lfm2.CONFIG, layers=2)
LENGTH = 8
ROWS = np.random.default_rng(0).integers(0, 40, (40, 4)).astype(np.int32)
LEARNING = Learning(rate=0.02, weight_decay=0.1, seed=3)
TOKENS = np.tile(np.array([5, 6, 7, 9, 11, 40, 41], np.uint16), 60)[: 40 * LENGTH].reshape(40, LENGTH)
PLAN = Plan(jnp.asarray(40, jnp.int32), jnp.asarray(np.resize(TOKENS, (4, LENGTH + 1))))


step = make_step(CONFIG.shape, LEARNING)
lossy = jax.jit(loss, static_argnums=3)


def steps(state: TrainState, count: int, plan: Plan = PLAN) -> tuple[TrainState, list[Metrics]]:
    """So many steps, two in a dispatch."""
    found = []
    for start in range(0, count, 2):
        state, metrics = step(state, plan, Stream(jnp.asarray(TOKENS)), jnp.asarray(ROWS[start : start + 2]))
        found.append(metrics)
    return state, found


def numbers(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def test_the_loss_is_the_mean_cross_entropy_of_the_next_token() -> None:
    state = LEARNING.first_state(CONFIG)
    batch = jnp.asarray(np.random.default_rng(1).integers(0, CONFIG.vocab, (2, LENGTH + 1)))
    value, (again, loads) = lossy(state.params, state.biases, batch, CONFIG.shape)
    run = jax.jit(logits, static_argnums=3)
    found = np.asarray(run(state.params, state.biases, batch[:, :-1], CONFIG.shape).logits)
    chance = np.exp(found) / np.exp(found).sum(-1, keepdims=True)
    expected = -np.mean(np.log(np.take_along_axis(chance, np.asarray(batch)[:, 1:, None], -1)))
    assert value == again == pytest.approx(expected, abs=1e-4)
    assert [float(load.sum()) for load in loads] == [2 * LENGTH * CONFIG.picked]


def test_it_learns() -> None:
    state, metrics = steps(LEARNING.first_state(CONFIG), 40)
    assert metrics[0].loss[0] > 5
    assert metrics[-1].loss[-1] < 1
    assert metrics[-1].held_out < 1
    assert int(state.step) == 40


def test_held_out_text_is_measured_after_the_steps_and_not_learned() -> None:
    other = PLAN._replace(held_out=PLAN.held_out + 100)
    first, seen = steps(LEARNING.first_state(CONFIG), 2)
    second, unseen = steps(LEARNING.first_state(CONFIG), 2, other)
    assert seen[0].held_out != unseen[0].held_out
    expected, _ = lossy(first.params, first.biases, PLAN.held_out.astype(jnp.int32), CONFIG.shape)
    assert float(seen[0].held_out) == pytest.approx(float(expected), abs=1e-3)
    for one, another in zip(numbers(first), numbers(second), strict=True):
        np.testing.assert_array_equal(one, another)


def test_the_number_of_steps_is_no_constant_of_the_program() -> None:
    shorter = PLAN._replace(steps=jnp.asarray(2, jnp.int32))
    first, second = (steps(LEARNING.first_state(CONFIG), 4, plan)[0] for plan in (PLAN, shorter))
    assert step._cache_size() == 1  # type: ignore[attr-defined]
    assert (np.asarray(first.params.norm) != np.asarray(second.params.norm)).any()


def test_the_rate_rises_and_falls() -> None:
    rates = [float(rate_at(jnp.asarray(step), jnp.asarray(1000), 0.5)) for step in (0, 9, 19, 20, 510, 999)]
    assert rates == pytest.approx([0.025, 0.25, 0.5, 0.5, 0.255, 0.01], abs=1e-3)
    assert float(rate_at(jnp.asarray(0), jnp.asarray(1), 0.5)) > 0


def test_norms_do_not_decay() -> None:
    state = LEARNING.first_state(CONFIG)
    still = jax.tree.map(jnp.zeros_like, state.params)
    updates, _ = jax.jit(LEARNING.optimizer().update)(still, state.optimizer, state.params)
    assert {update.ndim for update in numbers(updates) if update.any()} == {2, 3}
    assert {update.ndim for update in numbers(updates) if not update.any()} == {1}


def test_rows_are_cut_with_the_token_after_them_and_begin_anywhere() -> None:
    token = jnp.arange(40, dtype=jnp.uint16).reshape(5, 8)
    begun = set()
    for seed in range(40):
        found = np.asarray(cut(token, jnp.asarray([0, 2, 4]), jax.random.key(seed)))
        assert found.shape == (3, 9)
        assert (np.diff(found, axis=1) == 1).all()
        late = found[0, 0]
        assert found[:, 0].tolist() == [late, 16 + late, min(32 + late, 31)]
        begun.add(int(late))
    assert begun == set(range(8))


def test_busy_experts_are_wanted_less_and_idle_ones_more() -> None:
    (bias,) = balanced((jnp.asarray([0.5, 0.0, 0.0]),), [jnp.asarray([9.0, 0.0, 3.0])[:3]])
    np.testing.assert_allclose(bias, [0.5 - BALANCE_RATE, BALANCE_RATE, BALANCE_RATE], atol=1e-7)


def test_imbalance_is_the_busiest_over_the_average() -> None:
    loads = [jnp.asarray([4.0, 4.0]), jnp.asarray([6.0, 2.0])]
    assert float(imbalance(loads)) == pytest.approx(1.25)
    assert float(imbalance([])) == 1


def test_balance_holds_under_a_lopsided_router() -> None:
    state = LEARNING.first_state(CONFIG)
    lopsided = state._replace(biases=(jnp.asarray([1.0, 0, 0, 0, 0]),))
    after, _ = steps(lopsided, 6)
    assert float(after.biases[0][0]) == pytest.approx(1 - 6 * BALANCE_RATE, abs=1e-5)
