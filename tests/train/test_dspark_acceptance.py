"""Acceptance: equal to drafting block after block, and drawn drafts land as often as shared noise says."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.models.dspark_oracle import Oracle, Shape
from tests.models.dspark_streams import random_pair
from tests.train import dspark_tiny
from tests.train.dspark_tiny import REDUCED
from tfjax.train import dspark_acceptance
from tfjax.train.dspark_acceptance import Landed, Rounds, figures, land, walk
from tfjax.train.dspark_blocks import Rows
from tfjax.train.dspark_loss import Models
from tfjax.train.small_data import PROMPT, REPLY, Document, Packed, pack

SHAPE = Shape(ids=REDUCED, w1_rows=len(REDUCED), layers=1, block=4, hidden=24, head_dim=6)
CONFIG = dspark_tiny.config_of(SHAPE)


def pair() -> tuple[Any, Models, Oracle, Any]:
    """A drafter and a target of tables: parameters, models, oracle and the target's shape."""
    drafter = random_pair(SHAPE)
    target, models = dspark_tiny.table_target(CONFIG, REDUCED)
    embedding, head = (np.asarray(x, float) for x in (models.target.embedding, models.target.head))
    oracle = Oracle(
        SHAPE, {name: value.astype(np.float32) for name, value in drafter.oracle.w.items()}, embedding, head
    )
    return dspark_tiny.params_of(CONFIG, drafter.oracle.w), models, oracle, target


def written_by(oracle: Oracle, models: Models, length: int) -> NDArray[np.int32]:
    """A reply that the drafter's blocks write, but for one token in three."""
    random = np.random.default_rng(0)
    features = np.asarray(models.target.body[1], float)
    tokens = [5, 6, 7]
    while len(tokens) < length:
        own = oracle.draft(features[tokens[:-1]], tokens[-1]).tokens[0]
        tokens.append(own if random.random() < 0.7 else int(random.integers(64)))
    return np.array(tokens, np.int32)


def test_it_equals_drafting_block_after_block() -> None:
    params, models, oracle, target = pair()
    tokens = written_by(oracle, models, 24)
    packed = pack([Document(tokens, 3, greedy=True, held_out=True)] * 2, 32)
    found = land(params, models, Rows(packed, np.zeros(2, np.float32)), CONFIG, target, batch=3)
    features = np.asarray(models.target.body[1], float)

    at, drafts, confidences = 3, [], []
    while at + 1 < len(tokens):
        drafted = oracle.draft(features[tokens[:at]], int(tokens[at]))
        follows = tokens[at + 1 : at + 1 + CONFIG.block].tolist()
        right = [one == other for one, other in zip(drafted.tokens, follows, strict=False)]
        drafts.append(([*right, False]).index(False))
        confidences.append(drafted.confidences[0])
        at += drafts[-1] + 1
    rounds = walk(packed, found)
    assert rounds.drafts.tolist() == drafts * 2
    assert len(set(drafts)) > 2
    np.testing.assert_allclose(jax.nn.sigmoid(rounds.confidence[:, 0]), confidences * 2, atol=1e-3)
    assert figures(rounds)["tokens_per_round"] == pytest.approx(20 / len(drafts), abs=1e-3)


def scripted(drafts: list[int], kind: list[int]) -> tuple[Packed, Landed]:
    length = len(kind)
    ones = np.ones((1, length), np.int32)
    packed = Packed(ones, ones, np.arange(length)[None], np.array([kind]))
    landed = np.array([drafts], np.int32)
    most = np.minimum(3, length - 1 - np.arange(length))[None].astype(np.int32)
    return packed, Landed(landed, most, np.zeros((1, length, 3), np.float32))


def test_rounds_begin_where_the_one_before_ended() -> None:
    packed, landed = scripted([9, 2, 9, 9, 0, 1, 9, 0], [PROMPT, *[REPLY] * 7])
    rounds = walk(packed, landed)
    assert rounds.drafts.tolist() == [2, 0, 1]
    assert rounds.tokens == 6
    found = figures(rounds)
    # Places tried: all three rounds; those with one landed; the one with two, whose third missed.
    assert found["chance"] == [round(2 / 3, 4), 0.5, 0.0]
    assert found["tokens_per_round"] == 2.0


def test_a_draft_past_the_replys_end_is_not_counted() -> None:
    packed, landed = scripted([0, 2, 0], [REPLY] * 3)
    rounds = walk(packed, Landed(*landed))
    assert rounds.most.tolist() == [2, 1]
    assert rounds.tried.tolist() == [[True, False, False], [True, False, False]]


def test_several_sets_of_rounds_count_as_one() -> None:
    one = Rounds(np.array([1]), np.array([2]), np.zeros((1, 3), np.float32), 4)
    both = Rounds.together([one, one])
    assert (both.tokens, both.drafts.tolist(), both.confidence.shape) == (8, [1, 1], (2, 3))


def drawn_together(p: NDArray[np.float64], q: NDArray[np.float64], count: int) -> float:
    """How often two draws with the same noise are equal, by drawing."""
    noise = np.random.default_rng(1).gumbel(size=(count, len(p)))
    return float(np.mean((np.log(p) + noise).argmax(1) == (np.log(q) + noise).argmax(1)))


def test_noise_given_the_reply_is_that_of_shared_draws() -> None:
    """Replies drawn from p, their noise redrawn: q's draws equal them as often as with noise that both share."""
    count, temperature = 4000, 0.8
    random = np.random.default_rng(3)
    _, models, _, _ = pair()
    head = np.asarray(models.target.head, float)
    state = 0.6 * head[REDUCED[2]] + 0.5 * head[REDUCED[5]]
    wide = head @ state / temperature
    logits = (temperature * wide[list(REDUCED)] + random.normal(0, 1, len(REDUCED))).astype(np.float32)
    p = np.exp(wide - wide.max())
    p /= p.sum()
    q = np.zeros(64)
    q[list(REDUCED)] = np.exp(logits / temperature)
    q = (q + 1e-30) / q.sum()
    label = random.choice(64, size=(count, 1), p=p)
    found = dspark_acceptance._draws(
        jnp.asarray(np.broadcast_to(logits, (count, 1, len(logits)))),
        jnp.asarray(np.broadcast_to(state, (count, 1, 24)), jnp.float32),
        jnp.asarray(label),
        jnp.arange(count, dtype=jnp.int32)[:, None],
        jnp.float32(temperature),
        jnp.int32(0),
        models,
    )
    share = float(np.mean(np.asarray(found) == label))
    expected = drawn_together(p, q, 40_000)
    assert 0.2 < expected < 0.8
    assert share == pytest.approx(expected, abs=0.03)
    # The drafter draws from its own distribution, whatever the reply was.
    counts = np.bincount(np.asarray(found)[:, 0], minlength=64) / count
    np.testing.assert_allclose(counts, q, atol=0.03)
