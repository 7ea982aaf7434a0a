"""Results that lie in the memory of earlier ones: the same bits, and nobody loses what is still to be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.tiny import TINY, random_llama
from tfjax.engine.handed_round import HandedRound, copied, written_last
from tfjax.engine.lane_tables import empty_tables
from tfjax.engine.rows_buffer import RowsBuffer, Run, lay_out
from tfjax.engine.step import FEATURES_KEPT, Bucket, State, Step, Stepped
from tfjax.engine.unread import FIRST, nothing_unread
from tfjax.kernels.paged_attention import BLOCK_KEYS, PAGE_ROWS
from tfjax.models.llama import empty_cache

BUCKET, LANES = Bucket(4, 4, 4), 2
MODEL = random_llama(TINY, jnp.float32)


class Rounds:
    """Forwards of one lane, each behind the last one."""

    def __init__(self, *, hands_round: bool) -> None:
        self.step = Step(MODEL, (0, 1), hands_round=hands_round)
        pages = BLOCK_KEYS // PAGE_ROWS
        cache = empty_cache(TINY, pages + 1, PAGE_ROWS, LANES, jnp.dtype(jnp.float32))
        self.state = State(cache, empty_tables(LANES, TINY.vocab, BLOCK_KEYS), nothing_unread(LANES))
        self.table = jnp.array([list(range(1, pages + 1)), [0] * pages], jnp.int32)
        self.step.compile(BUCKET, self.state, self.table)
        self.position = 0

    def round(self) -> Stepped:
        buffer = RowsBuffer(BUCKET.rows)
        lay_out(buffer, [Run(0, self.position, 1)], tile_rows=BUCKET.tile_rows, scratch_lane=1)
        buffer["draw_row"][:] = np.arange(BUCKET.draws)
        buffer["behind"][0], buffer["tile_behind"][0] = (self.position > 0,) * 2
        token = np.array([FIRST if self.position else 5, 0, 0, 0], np.int32)
        stepped = self.step(BUCKET, self.state, token, buffer.matrix, self.table)
        self.state = stepped.state
        self.position += 1
        return stepped


def told(stepped: Stepped) -> list[Any]:
    return [np.array(leaf) for leaf in jax.tree.leaves(stepped._replace(state=None))]


def test_results_are_those_of_fresh_memory() -> None:
    ours, fresh = Rounds(hands_round=True), Rounds(hands_round=False)
    seen = set()
    for _ in range(40):
        own, other = ours.round(), fresh.round()
        for one, two in zip(told(own), told(other), strict=True):
            assert np.array_equal(one.view(np.uint8), two.view(np.uint8))
        seen.add(int(own.drawn.token[0]))
    assert len(seen) > 3
    for one, two in zip(jax.tree.leaves(ours.state), jax.tree.leaves(fresh.state), strict=True):
        assert np.array_equal(one, two)


def test_every_bucket_has_the_shapes_of_its_own_results_from_one_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt's bucket draws from fewer rows. A warm start lowers nothing, so each trace would be a start's wait."""
    traced: list[Bucket] = []
    real = Step.forward

    def counted(self: Step, bucket: Bucket, *arguments: Any) -> Stepped:
        traced.append(bucket)
        return real(self, bucket, *arguments)

    monkeypatch.setattr(Step, "forward", counted)
    rounds = Rounds(hands_round=True)
    buckets = (Bucket(8, 8, 4), Bucket(16, 4, 16))
    for bucket in buckets:
        rounds.step.compile(bucket, rounds.state, rounds.table)
    assert traced == [BUCKET, BUCKET, *buckets]
    for bucket in buckets:
        buffer = RowsBuffer(bucket.rows)
        lay_out(buffer, [Run(0, 0, 3)], tile_rows=bucket.tile_rows, scratch_lane=1)
        token = np.zeros(bucket.rows, np.int32)
        for _ in range(3):
            stepped = rounds.step(bucket, rounds.state, token, buffer.matrix, rounds.table)
            rounds.state = stepped.state
            assert stepped.features is not None
            assert (len(stepped.features), len(stepped.logits)) == (bucket.rows, bucket.draws)
            assert stepped.places.shape == (2, bucket.rows)


def test_features_and_places_stay_for_a_while_and_draws_until_they_are_given_back() -> None:
    rounds = Rounds(hands_round=True)
    first = rounds.round()
    draws, features = np.array(first.drawn.token), np.array(first.features)
    for _ in range(FEATURES_KEPT):
        rounds.round()
    assert first.logits.is_deleted()
    assert np.array_equal(first.features, features)
    for _ in range(3):
        rounds.round()
    assert first.features is not None
    assert first.features.is_deleted()
    assert first.places.is_deleted()
    assert np.array_equal(first.drawn.token, draws)
    rounds.step.give_back(BUCKET, first.drawn, first.token)
    rounds.round()
    assert first.drawn.token.is_deleted()


@contextmanager
def counted_new() -> Iterator[list[int]]:
    made: list[int] = []
    real = HandedRound._new

    def counted(self: HandedRound) -> Any:
        made.append(1)
        return real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HandedRound, "_new", counted)
        yield made


def test_steady_rounds_that_are_given_back_make_no_new_memory() -> None:
    rounds = Rounds(hands_round=True)
    flight = rounds.round()

    def ahead(count: int) -> None:
        nonlocal flight
        for _ in range(count):
            flight, before = rounds.round(), flight
            rounds.step.give_back(BUCKET, before.drawn, before.token)

    ahead(3)
    with counted_new() as made:
        ahead(30)
        assert not made
        rounds.round()
        rounds.round()
    assert made, "draws that nobody gave back are not taken"


def test_results_are_told_apart_from_the_old_ones() -> None:
    """Every result is the new one, in the memory of an old one of its shape."""
    new, old = {"a": jnp.arange(6.0), "b": jnp.arange(3)}, {"a": jnp.full(6, 9.0), "b": jnp.full(3, 9)}
    made = jax.jit(written_last, donate_argnums=1)(new, old)
    assert made["a"].tolist() == [0, 1, 2, 3, 4, 5]
    assert made["b"].tolist() == [0, 1, 2]
    assert old["a"].is_deleted()
    one, two = jax.jit(copied)(jnp.arange(4), jnp.arange(6).reshape(2, 3))
    assert one.tolist() == [0, 1, 2, 3]
    assert two.tolist() == [[0, 1, 2], [3, 4, 5]]
