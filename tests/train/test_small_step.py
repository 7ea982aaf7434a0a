"""The loss against numpy, what it does not look at, and the step's schedule."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.train.test_small_model import DRAFT_IDS, EMBEDDING, OWN, trained
from tfjax.models.blocks.rope import RopeConfig
from tfjax.train.small_data import CONTEXT, PAD, PROMPT, REPLY, Packed
from tfjax.train.small_dense import LAYER_TENSORS, Shape, places
from tfjax.train.small_model import student_logits
from tfjax.train.small_step import Models, Objective, Schedule, TrainState, loss, make_step
from tfjax.train.small_target import Teacher, teacher_logits

TARGET = Shape(heads=3, kv_heads=3, head_dim=8, norm_eps=1e-5, rope=RopeConfig(10000.0))
BATCH = Packed(
    token=np.array([[3, 49, 7, 8, 0, 21, 33, 8, 14, 0], [9, 9, 40, 2, 2, 30, 31, 32, 11, 5]]),
    segment=np.array([[1, 1, 1, 1, 2, 2, 2, 2, 2, 0], [1] * 10]),
    position=np.array([[0, 1, 2, 3, 0, 1, 2, 3, 4, 0], list(range(10))]),
    kind=np.array([[PROMPT, PROMPT, *[REPLY] * 7, PAD], [CONTEXT] * 4 + [REPLY] * 6]),
)


def teacher() -> Teacher:
    random = np.random.default_rng(5)
    sizes = {"gate": (16, 24), "up": (16, 24), "down": (24, 16)}
    layers = {
        name: jnp.asarray(random.normal(0, 0.3, (1, *sizes.get(name, (24, 24)))), jnp.bfloat16)
        for name in LAYER_TENSORS
        if "norm" not in name
    }
    norms = {name: jnp.ones((1, 24), jnp.bfloat16) for name in LAYER_TENSORS if "norm" in name}
    return Teacher({**layers, **norms}, jnp.ones(24, jnp.bfloat16), jnp.asarray(EMBEDDING[DRAFT_IDS] * 3, jnp.bfloat16))


def parts(batch: Packed = BATCH) -> tuple[Any, Models]:
    params, frozen = trained(OWN)
    return params, Models(frozen, teacher())


def found(objective: Objective, models: Models, batch: Packed = BATCH) -> dict[str, float]:
    params, _ = trained(OWN)
    run = jax.jit(loss, static_argnums=(3, 4, 5))
    value, metrics = run(params, models, Packed(*map(jnp.asarray, batch)), OWN, TARGET, objective)
    assert value == metrics.loss
    return {name: float(number) for name, number in metrics._asdict().items()}


def log_softmax(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)) - x.max(-1, keepdims=True)


def by_hand(objective: Objective) -> dict[str, float]:
    """One position after another, in numpy, from the models' logits."""
    params, models = parts()
    batch = Packed(*map(jnp.asarray, BATCH))
    at = places(batch.segment, batch.position)
    q = log_softmax(np.asarray(student_logits(params, models.frozen, batch.token, OWN, at)))
    p = log_softmax(np.asarray(teacher_logits(models.teacher, models.frozen.embedding, batch.token, TARGET, at)))
    total = weights = cross_sum = cross_count = kl_sum = agree = replies = 0.0
    ids = DRAFT_IDS.tolist()
    for row in range(2):
        for t in range(9):
            kind, token = BATCH.kind[row, t + 1], int(BATCH.token[row, t + 1])
            if BATCH.segment[row, t] != BATCH.segment[row, t + 1] or kind not in (PROMPT, REPLY):
                continue
            cross = -q[row, t, ids.index(token)] if token in ids else 0.0
            kl = (np.exp(p[row, t]) * (p[row, t] - q[row, t])).sum()
            weight = 1 if kind == REPLY else objective.prompt_weight
            total += weight * (objective.teacher_weight * kl + (1 - objective.teacher_weight) * cross)
            weights += weight
            if kind == REPLY:
                replies += 1
                kl_sum += kl
                agree += ids[int(q[row, t].argmax())] == token
                cross_sum += cross
                cross_count += token in ids
    return {
        "loss": total / weights,
        "cross_entropy": cross_sum / cross_count,
        "divergence": kl_sum / replies,
        "agreement": agree / replies,
    }


@pytest.mark.parametrize("objective", [Objective(0.7, 0.25), Objective(0.0, 0.0), Objective(1.0, 1.0)])
def test_the_loss_is_that_of_a_plain_loop(objective: Objective) -> None:
    expected = by_hand(objective)
    assert expected["divergence"] > 0.1
    assert found(objective, parts()[1]) == pytest.approx(expected, rel=0.03)


def test_without_a_teacher_the_replies_alone_count() -> None:
    objective = Objective(0.7, 0.0)
    alone = found(objective, Models(parts()[1].frozen, None))
    both = found(objective, parts()[1])
    assert alone["divergence"] == 0
    assert alone["cross_entropy"] == pytest.approx(both["cross_entropy"], rel=1e-3)
    known = np.isin([7, 8, 21, 33, 8, 14, 2, 30, 31, 32, 11, 5], DRAFT_IDS)
    assert 0 < known.sum() < 12
    assert alone["loss"] == pytest.approx(alone["cross_entropy"] * known.sum() / 12, rel=1e-3)


def test_a_batch_of_nothing_but_padding_has_loss_zero() -> None:
    empty = Packed(*(np.zeros((1, 4), np.int32) for _ in Packed._fields))
    assert found(Objective(0.5, 0.1), parts()[1], empty)["loss"] == 0


def test_steps_lower_the_loss_and_norms_do_not_decay() -> None:
    params, models = parts()
    models = Models(models.frozen, None)
    schedule = Schedule(0.02, 20, weight_decay=0.0)
    step = make_step(OWN, TARGET, Objective(0.0, 0.1), schedule)
    data = Packed(*map(jnp.asarray, BATCH))
    rows = jnp.zeros((20, 2), int) + jnp.arange(2)
    _, metrics = step(TrainState(params, schedule.optimizer().init(params)), models, data, rows)
    losses = np.asarray(metrics.loss)
    assert losses.shape == (20,)
    assert losses[-1] < 0.5 * losses[0]


def test_weight_decay_spares_norms_only() -> None:
    params, _ = trained(OWN)
    nothing = jax.tree.map(jnp.zeros_like, params)
    optimizer = Schedule(0.1, 10, weight_decay=0.5).optimizer()
    state = optimizer.init(params)
    _, state = optimizer.update(nothing, state, params)  # the first rate of the warm-up is 0
    updates, _ = optimizer.update(nothing, state, params)
    moved = {jax.tree_util.keystr(path): bool((leaf != 0).any()) for path, leaf in jax.tree.leaves_with_path(updates)}
    assert {name for name, moves in moved.items() if not moves} == {name for name in moved if "norm" in name}


def test_the_rate_rises_then_falls_to_a_twentieth() -> None:
    optimizer = Schedule(1.0, 100, weight_decay=0.0).optimizer()
    state = optimizer.init({"w": jnp.zeros(1)})
    rates = []
    for _ in range(101):
        updates, state = optimizer.update({"w": jnp.ones(1)}, state, {"w": jnp.zeros(1)})
        rates.append(-float(updates["w"][0]))
    assert rates[0] == 0
    assert int(np.argmax(rates)) == 5
    assert max(rates) == pytest.approx(1, abs=0.01)
    assert rates[-1] == pytest.approx(0.05, abs=0.01)


def test_a_huge_gradient_is_clipped() -> None:
    optimizer = Schedule(1.0, 100, weight_decay=0.0).optimizer()
    params = {"w": jnp.zeros(4)}
    ordinary, huge = ({"w": jnp.full(4, size)} for size in (0.5, 1e6))
    assert optimizer.update(ordinary, optimizer.init(params), params)[1][1][0].mu["w"].tolist() == pytest.approx(
        optimizer.update(huge, optimizer.init(params), params)[1][1][0].mu["w"].tolist()
    )
