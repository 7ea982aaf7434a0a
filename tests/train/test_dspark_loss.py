"""The loss against a plain loop in numpy, and what it does not look at."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.models.dspark_oracle import Shape
from tests.train import dspark_tiny
from tests.train.dspark_tiny import BATCH, REDUCED
from tfjax.train import dspark_loss
from tfjax.train.dspark_blocks import Rows
from tfjax.train.dspark_loss import Metrics, Objective, SureOf, loss
from tfjax.train.small_data import REPLY, Packed

SHAPE = Shape(ids=REDUCED, w1_rows=len(REDUCED), layers=1, block=4)
CONFIG = dspark_tiny.config_of(SHAPE)
TARGET, MODELS = dspark_tiny.table_target(CONFIG, REDUCED)
PARAMS = dspark_tiny.random_params(CONFIG)
ANCHOR = jnp.asarray([[2, 3, 8, 12, 15], [4, 6, 9, 13, 14]])
TEMPERATURE = (0.6, 0.0)
"""Of the rows: one drawn, one greedy."""
OBJECTIVE = Objective(0.1, 0.9, 0.3, 1.0, decay=4.0, sure_of=SureOf.OVERLAP)
MATCHED = dataclasses.replace(OBJECTIVE, coupling=0.7, matched=True, greedy_temperature=0.4)


def rows_of(batch: Packed = BATCH, temperature: tuple[float, float] = TEMPERATURE) -> Rows:
    return Rows(Packed(*map(jnp.asarray, batch)), jnp.asarray(temperature, jnp.float32))


def found(
    objective: Objective = OBJECTIVE,
    batch: Packed = BATCH,
    models: Any = MODELS,
    temperature: tuple[float, float] = TEMPERATURE,
) -> Metrics:
    run = jax.jit(loss, static_argnums=(4, 5, 6))
    value, metrics = run(PARAMS, models, rows_of(batch, temperature), ANCHOR, CONFIG, TARGET, objective)
    assert value == metrics.loss
    return jax.tree.map(float, metrics)


def softmax(x: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = np.exp(x - x.max())
    return shifted / shifted.sum()


def coupled(p: NDArray[np.float64], q: NDArray[np.float64], known: list[int]) -> float:
    """How often two draws with the same noise are one token; the tokens that q lacks are one for p."""
    mine, own = np.append(p[known], 1 - p[known].sum()), np.append(q[known], 0)
    return float(sum(1 / np.maximum(mine / mine[i], own / own[i]).sum() for i in range(len(known))))


def by_hand(objective: Objective) -> Metrics:
    """One draft after another, from the drafter's logits and the target's tables."""
    states, features = (np.asarray(table, np.float64) for table in MODELS.target.body)
    at = jnp.asarray(features[BATCH.token], jnp.float32)
    device = Packed(*map(jnp.asarray, BATCH))
    _, logits, confidences = (
        np.asarray(part, np.float64) for part in dspark_tiny.drafted(PARAMS, MODELS, device, at, ANCHOR, CONFIG)
    )
    norm, head = np.asarray(MODELS.target.norm, np.float64), np.asarray(MODELS.target.head, np.float64)
    sums, weights, first, agreed, kept = np.zeros(5), 0.0, 0, 0, 0
    for row, n in np.ndindex(*ANCHOR.shape):
        anchor, alive = int(ANCHOR[row, n]), True
        drawn = TEMPERATURE[row] > 0
        divisor = (TEMPERATURE[row] if objective.matched else 1.0) if drawn else objective.greedy_temperature
        for k in range(CONFIG.block):
            label = anchor + k + 1
            same = label < 16 and BATCH.segment[row, label] == BATCH.segment[row, anchor]
            if not same or (BATCH.kind[row, anchor : label + 1] != REPLY).any():
                break
            x = states[BATCH.token[row, anchor + k]]
            wide = head @ (x / np.sqrt(np.mean(x * x) + CONFIG.norm_eps) * norm)
            p, q = softmax(wide / divisor), np.zeros(64)
            q[list(REDUCED)] = softmax(logits[row, n, k] / divisor)
            token = int(BATCH.token[row, label])
            distance = np.abs(p - q).sum()
            known = list(REDUCED)
            divergence = (p[known] * np.log(p[known] / q[known])).sum()
            cross = -np.log(q[token]) if token in REDUCED else 0.0
            agrees = known[int(np.argmax(logits[row, n, k]))] == int(np.argmax(wide))
            both = coupled(p, q, known)
            kept_chance = both if drawn else float(agrees)
            lands = {"greedy": float(agrees), "overlap": 1 - distance / 2, "kept": kept_chance}[objective.sure_of.value]
            c = confidences[row, n, k]
            sure = -(lands * np.log(c) + (1 - lands) * np.log(1 - c))
            weight = np.exp(-k / objective.decay)
            sums += weight * np.array([cross, distance, divergence, 1 - both, sure])
            weights += weight
            alive &= agrees
            kept += alive
            if k == 0:
                first, agreed = first + 1, agreed + agrees
    means = sums / weights
    parts = (objective.cross, objective.distance, objective.divergence, objective.coupling, objective.confidence)
    return Metrics(float(means @ np.array(parts)), *means.tolist(), agreed / first, kept / first)


@pytest.mark.parametrize(
    "objective",
    [
        OBJECTIVE,
        Objective(1.0, 0.0, 0.0, 0.5, decay=2.0, sure_of=SureOf.GREEDY),
        MATCHED,
        dataclasses.replace(MATCHED, sure_of=SureOf.KEPT),
    ],
    ids=["overlap", "greedy", "at the reply's temperature", "kept"],
)
def test_the_loss_is_that_of_a_plain_loop(objective: Objective) -> None:
    expected = by_hand(objective)
    assert found(objective) == pytest.approx(expected, rel=2e-3, abs=1e-4)


def test_half_the_distance_is_what_does_not_overlap() -> None:
    """The mass of tokens that cannot be drafted is counted once in the distance, and overlaps with nothing."""
    random = np.random.default_rng(0)
    wide, logits = random.normal(0, 1, (1, 1, 64)), random.normal(0, 1, (1, 1, len(REDUCED)))
    p, q = softmax(wide[0, 0]), softmax(logits[0, 0])
    zeros = jnp.zeros((1, 1), int)
    terms = dspark_loss._terms(
        jnp.asarray(logits),
        jnp.zeros((1, 1)),
        jnp.log(jnp.asarray(p[list(REDUCED)]))[None, None],
        dspark_loss.Judged(jnp.zeros((1, 1)), zeros, zeros[..., None]),
        zeros,
        jnp.bool_(False),
        MODELS,
        OBJECTIVE,
    )
    assert 1 - float(terms.distance[0, 0]) / 2 == pytest.approx(np.minimum(p[list(REDUCED)], q).sum(), abs=1e-5)


@pytest.mark.parametrize("sure_of", SureOf)
def test_no_gradient_flows_from_the_confidence_into_what_lands(sure_of: SureOf) -> None:
    only = Objective(0.0, 0.0, 0.0, 1.0, decay=4.0, sure_of=sure_of)
    gradient = jax.jit(jax.grad(lambda p: loss(p, MODELS, rows_of(), ANCHOR, CONFIG, TARGET, only)[0]))(PARAMS)
    assert float(jnp.abs(gradient["markov"]["w2"]).max()) == 0
    assert float(jnp.abs(gradient["confidence"]["weight"]).max()) > 0


def test_a_few_rows_at_a_time_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = found()
    monkeypatch.setattr(dspark_loss, "MOST_LOGITS", 1)
    jax.clear_caches()
    assert found() == pytest.approx(whole, rel=1e-5)


def test_a_batch_of_nothing_but_padding_has_loss_zero() -> None:
    empty = Packed(*(np.zeros((2, 16), np.int32) for _ in Packed._fields))
    assert found(batch=empty).loss == 0


def test_the_target_is_read_once_and_not_taught() -> None:
    gradient = jax.jit(
        jax.grad(lambda m: loss(PARAMS, m, rows_of(), ANCHOR, CONFIG, TARGET, OBJECTIVE)[0], allow_int=True)
    )(MODELS)
    assert all(float(jnp.abs(table).max()) == 0 for table in gradient.target.body)


def test_temperatures_count_only_where_they_are_matched() -> None:
    assert found(temperature=(0.6, 0.0)) == found(temperature=(0.9, 0.0))
    assert found(MATCHED, temperature=(0.6, 0.0)) != found(MATCHED, temperature=(0.9, 0.0))
    colder = dataclasses.replace(MATCHED, greedy_temperature=0.3)
    assert found(MATCHED, temperature=(0.6, 0.6)) == found(colder, temperature=(0.6, 0.6))
    assert found(MATCHED, temperature=(0.0, 0.0)) != found(colder, temperature=(0.0, 0.0))
