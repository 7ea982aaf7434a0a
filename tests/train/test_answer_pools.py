"""Pools: every prompt is answered once, in whichever row is free; when a pool is due; sizes."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

from tests.train.tiny_run import VOCAB, write_target
from tfjax.checkpoints import open_checkpoint
from tfjax.train import answer_pools
from tfjax.train.answer_pools import Pool, Request, ready_pools
from tfjax.train.dense_target import DenseTarget, read_target
from tfjax.train.llama_sample import llama_of
from tfjax.train.shards import WrittenReply
from tfjax.train.small_dense import Shape

ROOM, MOST_NEW = 6, 5


@dataclass(frozen=True, slots=True)
class Sizes:
    context: int
    max_tokens: int
    parallel: int


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> DenseTarget:
    return read_target(open_checkpoint(write_target(tmp_path_factory.mktemp("model") / "target")), jnp.float32)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_pools, "STEPS", 2)
    monkeypatch.setattr(answer_pools, "GROUP", 2)


def pool(target: DenseTarget, rows: int, ends: tuple[int, ...] = ()) -> Pool:
    shape = target.shape.config
    assert isinstance(shape, Shape)
    return Pool(llama_of(target.weights), shape, ends, rows=rows, room=ROOM, most_new=MOST_NEW)


def request(index: int) -> Request:
    chance = np.random.default_rng(index)
    prompt = tuple(chance.integers(0, VOCAB, 1 + index % ROOM).tolist())
    return Request(index, "chat", 0.9 * (index % 2), 100 + index, prompt)


def answers(target: DenseTarget, rows: int, count: int, ends: tuple[int, ...] = ()) -> dict[int, WrittenReply]:
    one, found = pool(target, rows, ends), list[WrittenReply]()
    one.waiting.extend(map(request, range(count)))
    while one.waiting or one.is_due(True):
        one.launch()
        found += one.collect()
    assert sorted(reply.index for reply in found) == list(range(count))
    assert one.open_tokens == 0
    return {reply.index: reply for reply in found}


def test_replies_do_not_depend_on_which_rows_are_free(target: DenseTarget) -> None:
    alone = answers(target, 1, 7)
    assert answers(target, 3, 7) == alone
    for index, reply in alone.items():
        asked = request(index)
        assert (reply.prompt, reply.kind, reply.temperature) == (asked.prompt, asked.kind, asked.temperature)
        assert len(reply.reply) == MOST_NEW
    assert len({reply.reply for reply in alone.values()}) == 7


def test_a_reply_is_kept_with_its_end_token(target: DenseTarget) -> None:
    whole = answers(target, 3, 4)
    end = whole[2].reply[1]
    first = whole[2].reply.index(end) + 1
    assert answers(target, 3, 4, (end,))[2].reply == whole[2].reply[:first]


def test_a_pool_waits_for_most_of_its_rows_and_at_the_end_for_none(target: DenseTarget) -> None:
    one = pool(target, 10)
    assert (one.lacks, one.is_crowded, one.is_due(False), one.is_due(True)) == (True, False, False, False)
    one.waiting.extend(map(request, range(8)))
    assert (one.lacks, one.is_due(False)) == (True, False)
    one.waiting.extend(map(request, range(8, 11)))
    assert (one.lacks, one.is_crowded, one.is_due(False)) == (False, True, True)
    one.launch()
    assert one.collect() == []
    assert (len(one.waiting), one.is_crowded, one.is_due(True), one.open_tokens) == (1, False, True, 20)


def test_pools_take_short_and_long_prompts(target: DenseTarget) -> None:
    short, long = ready_pools(target, Sizes(context=40, max_tokens=8, parallel=10), ())
    assert (short.room, long.room) == (8, 32)
    short.waiting.extend(map(request, range(7)))
    long.waiting.extend(map(request, range(3)))
    assert (short.lacks, short.is_crowded, long.lacks, long.is_crowded) == (False, True, False, True)
