"""Acceptance by depth: counted by hand, and equal to drafting token by token."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.train.test_small_model import OWN, trained
from tfjax.train.small_acceptance import by_depth, drafted_positions, measure
from tfjax.train.small_data import PROMPT, REPLY, Document, Packed, pack
from tfjax.train.small_dense import places
from tfjax.train.small_model import student_logits


def test_a_draft_counts_only_where_those_before_it_landed() -> None:
    landed = np.array([[1, 1, 0, 1, 1, 1]], bool)
    found = by_depth(landed, np.ones_like(landed), depths=3)
    # Depth 2 is tried after the landings at 0, 1, 3 and 4 (after 5 there is no more reply); depth 3 after those at 0
    # and 3, whose second landed too and where a third token exists.
    assert found["chance"] == pytest.approx([5 / 6, 3 / 4, 1 / 2], abs=1e-4)
    assert found["chain"] == pytest.approx([5 / 6, 5 / 8, 5 / 16], abs=1e-4)
    assert found["tokens_per_round"] == pytest.approx(1 + 5 / 6 + 5 / 8 + 5 / 16, abs=1e-4)
    assert found["positions"] == 6


def test_runs_end_with_the_reply() -> None:
    landed = np.ones((1, 6), bool)
    drafted = np.array([[1, 1, 0, 1, 1, 0]], bool)
    found = by_depth(landed, drafted, depths=3)
    assert found["positions"] == 4
    assert found["chance"] == [1.0, 1.0, 0.0]


def test_only_reply_tokens_after_the_first_are_drafted() -> None:
    kind = np.array([[PROMPT, PROMPT, REPLY, REPLY, REPLY, REPLY, REPLY, 0]])
    segment = np.array([[1, 1, 1, 1, 1, 2, 2, 0]])
    packed = Packed(np.zeros((1, 8), int), segment, np.zeros((1, 8), int), kind)
    assert drafted_positions(packed).tolist() == [[False, False, True, True, False, True, False]]


def test_it_equals_drafting_token_by_token() -> None:
    params, frozen = trained(OWN)

    @jax.jit
    def likeliest(token: jax.Array) -> jax.Array:
        at = places(jnp.ones_like(token), jnp.arange(32)[None])
        return frozen.draft_ids[jnp.argmax(student_logits(params, frozen, token, OWN, at)[0], -1)]

    def draft(context: list[int], depth: int) -> list[int]:
        for _ in range(depth):
            padded = jnp.asarray([context + [0] * (32 - len(context))])
            context = [*context, int(likeliest(padded)[len(context) - 1])]
        return context[-depth:]

    # A reply that the drafter writes itself, but for one token in three.
    random = np.random.default_rng(0)
    tokens = [5, 6, 7]
    while len(tokens) < 24:
        tokens.append(draft(tokens, 1)[0] if random.random() < 0.7 else int(random.integers(50)))
    document = Document(np.array(tokens, np.int32), 3, greedy=True, held_out=True)
    found = measure(params, frozen, [document] * 3, OWN, length=32, batch=2)

    tried, landed = np.zeros(8), np.zeros(8)
    for end in range(4, len(tokens)):
        for depth, drafted in enumerate(draft(tokens[:end], min(8, len(tokens) - end))):
            tried[depth] += 1
            if drafted != tokens[end + depth]:
                break
            landed[depth] += 1
    expected = [float(x) for x in np.round(landed / np.maximum(tried, 1), 4)]
    assert 0.2 < expected[0] < 0.95
    assert found["chance"] == expected
    assert found["positions"] == 3 * 20


def test_rows_that_fill_a_batch_up_are_not_counted() -> None:
    params, frozen = trained(OWN)
    documents = [Document(np.arange(length, dtype=np.int32), 2, greedy=True, held_out=True) for length in (9, 12, 15)]
    assert len(pack(documents, 16).token) == 3
    one, other = (measure(params, frozen, documents, OWN, length=16, batch=batch) for batch in (2, 3))
    assert one == other
