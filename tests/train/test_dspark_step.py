"""The step: rates, what the norms' own rate reaches, and that drafts are learned."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.dspark_oracle import Shape
from tests.train import dspark_tiny
from tests.train.dspark_tiny import BATCH, REDUCED
from tfjax.train.dspark_blocks import Rows
from tfjax.train.dspark_loss import Objective, SureOf
from tfjax.train.dspark_step import (
    Given,
    Knobs,
    Step,
    TrainState,
    _paced,
    first_state,
    knobs,
    learning_rate,
    make_step,
    optimizer,
)
from tfjax.train.small_data import Packed

CONFIG = dspark_tiny.config_of(Shape(ids=REDUCED, w1_rows=len(REDUCED), layers=1, block=4))
TARGET, MODELS = dspark_tiny.table_target(CONFIG, REDUCED)
DATA = Rows(Packed(*map(jnp.asarray, BATCH)), jnp.array([0.8, 0.0]))
ROWS = jnp.zeros((20, 2), int) + jnp.arange(2)


@pytest.fixture(scope="module")
def step() -> Step:
    return make_step(CONFIG, TARGET, Objective(0.0, 0.0, 1.0, 1.0, 4.0, SureOf.OVERLAP), 6)


def fresh() -> TrainState:
    return first_state(dspark_tiny.random_params(CONFIG))


def test_steps_lower_the_loss(step: Step) -> None:
    state, metrics = step(fresh(), Given(MODELS, knobs(0.02, 1.0, 40, 1)), DATA, ROWS)
    state, later = step(state, Given(MODELS, knobs(0.02, 1.0, 40, 1)), DATA, ROWS)
    assert metrics.loss.shape == (20,)
    assert int(state.step) == 40
    assert float(later.divergence[-5:].mean()) < 0.5 * float(metrics.divergence[:3].mean())


def test_anchors_depend_on_seed_and_step(step: Step) -> None:
    one, again, other = (
        np.asarray(step(fresh(), Given(MODELS, knobs(0.0, 1.0, 40, seed)), DATA, ROWS)[1].loss) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    assert len(set(one.tolist())) > 5


def test_a_rate_of_the_norms_own() -> None:
    updates = {
        "fc": jnp.ones(2),
        "layers": {"q_norm": jnp.ones(2), "k_norm": jnp.ones(2), "attention_norm": jnp.ones(2)},
    }
    found = _paced(updates, knobs(0.5, 8.0, 1 << 20, 0)._replace(steps=jnp.int32(1)), jnp.int32(0))
    moved = {jax.tree_util.keystr(path): float(value[0]) for path, value in jax.tree.leaves_with_path(found)}
    assert moved == {
        "['fc']": -0.5,
        "['layers']['q_norm']": -4.0,
        "['layers']['k_norm']": -4.0,
        "['layers']['attention_norm']": -0.5,
    }


def test_the_rate_rises_then_falls_to_a_twentieth() -> None:
    given: Knobs = knobs(2.0, 1.0, 100, 0)
    rates = [float(learning_rate(given, jnp.int32(step))) for step in range(101)]
    assert rates[0] == pytest.approx(0.5)
    assert int(np.argmax(rates)) in (3, 4)
    assert max(rates) == pytest.approx(2.0)
    assert rates[-1] == pytest.approx(0.1)
    assert all(one >= other for one, other in itertools.pairwise(rates[4:]))


def test_a_huge_gradient_is_clipped() -> None:
    adam, params = optimizer(), {"w": jnp.zeros(4)}
    ordinary, huge = (adam.update({"w": jnp.full(4, size)}, adam.init(params))[1] for size in (0.5, 1e6))
    assert ordinary[1].mu["w"].tolist() == pytest.approx(huge[1].mu["w"].tolist())


def test_a_rows_temperature_goes_with_the_row() -> None:
    matched = make_step(CONFIG, TARGET, Objective(0.0, 0.0, 1.0, 0.0, 4.0, SureOf.KEPT, matched=True), 6)
    warm = DATA._replace(temperature=jnp.array([0.8, 0.6]))
    given = Given(MODELS, knobs(0.0, 1.0, 40, 1))
    firsts, seconds = jnp.zeros((1, 2), int), jnp.ones((1, 2), int)
    cold, other = (float(matched(fresh(), given, data, firsts)[1].loss[0]) for data in (DATA, warm))
    assert cold == other
    cold, other = (float(matched(fresh(), given, data, seconds)[1].loss[0]) for data in (DATA, warm))
    assert cold != other
