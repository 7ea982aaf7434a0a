"""DSpark's runtime on a tiny target: what it drafts, and what it knows of a context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.engine.drafters.pair import PROMPTS, stream_on
from tests.engine.drafters.spark_pair import (
    BLOCK,
    SHAPE,
    oracle_says,
    random_spark,
    started_spark,
)
from tests.engine.drafters.spark_stage import MEMORY, Stage
from tests.engine.drafters.test_small_model import RULES
from tests.models.tiny import TINY
from tfjax.engine.compiles import compiles
from tfjax.engine.drafters.block_plan import BlockBucket
from tfjax.engine.drafters.block_step import JOINED, Told
from tfjax.engine.step import FEATURES_KEPT
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.drafter import Ask, Drafter
from tfjax.lanes.stream import Stream


def test_fulfils_the_protocol(stage: Stage) -> None:
    drafter: Drafter = stage.drafter
    assert (drafter.depth, drafter.context, drafter.stands_aside) == (BLOCK, TINY.context, True)


# Drafts that land.


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("lanes", [(0,), (2, 0), (0, 1, 2)])
def test_what_the_target_says_next_lands(perfect_stage: Stage, lanes: Sequence[int], rules: dict[str, Any]) -> None:
    streams = [perfect_stage.on_lane(lane, **rules) for lane in lanes]
    pair = perfect_stage.started(*streams)
    for turn in range(5):
        pair.round(streams, [(3 * turn + 2 * lane) % BLOCK + 1 for lane in lanes])
    assert pair.all_landed
    said = [set(stream.context[len(stream.request.prompt) :]) for stream in streams]
    assert all(len(tokens) > (4 if rules else 1) for tokens in said), "no draft lands by repetition"
    pair.end(streams)


def test_streams_of_different_rules_share_a_hold(perfect_stage: Stage) -> None:
    streams = [perfect_stage.on_lane(lane, **rules) for lane, rules in enumerate(list(RULES.values())[2:])]
    pair = perfect_stage.started(*streams)
    for turn in range(4):
        pair.round(streams, [turn + 1, 5, BLOCK - turn])
    assert pair.all_landed
    pair.end(streams)


@pytest.mark.parametrize("kept", range(1, BLOCK + 2))
def test_drafts_land_after_every_count_of_kept_rows(perfect_stage: Stage, kept: int) -> None:
    stream = perfect_stage.on_lane(1, temperature=1.0, seed=3)
    pair = perfect_stage.started(stream)
    for _ in range(3):
        pair.round([stream], [BLOCK], keep=kept)
    assert pair.landed[stream.request.id] == [BLOCK] * 3
    pair.end([stream])


# What a block is, and what is known of the context.


@pytest.mark.parametrize("depth", [1, 2, 3, BLOCK])
def test_a_block_is_the_oracles(stage: Stage, depth: int) -> None:
    """Streams of several lengths in one hold; drafts of as many slots as are compiled for this depth."""
    streams = [stage.on_lane(lane) for lane in (0, 1, 2)]
    pair = stage.started(*streams)
    for together, computed in ((streams, BLOCK), (streams[1:2], {1: 1, 2: 2, 3: BLOCK, BLOCK: BLOCK}[depth])):
        ticket = stage.drafter.hold([Ask(stream, depth) for stream in together])
        (guesses,) = stage.drafter.read([ticket])
        for stream, guess in zip(together, guesses, strict=True):
            said = stage.says(stream, computed)
            assert guess.tokens == said.tokens[:depth]
            assert np.allclose(guess.confidences, said.confidences[:depth], atol=1e-3)
    pair.end(streams)


def test_a_stream_gets_no_more_drafts_than_it_asked_for(stage: Stage) -> None:
    """Also where they stay on the device beside those of a deeper one."""
    streams = [stage.on_lane(0), stage.on_lane(1)]
    pair = stage.started(*streams)
    ticket = stage.drafter.hold([Ask(streams[0], 2), Ask(streams[1], BLOCK)])
    assert ticket.drafts is not None
    tokens = np.asarray(ticket.drafts.token)
    assert (tokens >= 0).sum(1).tolist() == [2, BLOCK, 0, 0]
    assert all(stage.drafter.holds_for(stream) for stream in streams)
    waiting = np.asarray(stage.target.unread.drafts)[[stream.lane for stream in streams]]
    assert (waiting >= 0).sum(1).tolist() == [2, BLOCK]
    assert waiting[:, :BLOCK].tolist() == tokens[:2].tolist()
    pair.end(streams)
    assert not stage.drafter.holds_for(streams[1])


def test_a_hold_that_fails_leaves_no_drafts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stage.on_lane(0)
    pair = stage.started(stream)
    stage.drafter.hold([Ask(stream, 2)])
    assert stage.drafter.holds_for(stream)

    def fail(*given: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(stage.drafter.step, "hold", fail)
    with pytest.raises(RuntimeError):
        stage.drafter.hold([Ask(stream, 2)])
    assert not stage.drafter.holds_for(stream)
    pair.end([stream])


def test_a_block_whose_first_mask_makes_the_first_draft(random_stage: Stage) -> None:
    shape = replace(SHAPE, anchor_first=False, temperatures=())
    spark = random_spark(random_stage.model.module, shape)
    drafter = started_spark(spark, random_stage.target, [BlockBucket(1, BLOCK + 1)])
    stream = random_stage.on_lane(1)
    pair = random_stage.started(stream, drafter=drafter)
    said = oracle_says(spark, random_stage.target, random_stage.model, stream)
    for depth in (BLOCK, 2):
        assert pair.draft([stream], [depth]) == [tuple(said.tokens[:depth])]
    pair.end([stream])
    stream = random_stage.on_lane(1, PROMPTS[1][: PAGE_ROWS - 3])
    stream.pages = stream.pages[:1]
    pair = random_stage.started(stream, drafter=drafter)
    said = oracle_says(spark, random_stage.target, random_stage.model, stream, 2)
    assert pair.draft([stream], [BLOCK]) == [tuple(said.tokens)], "the anchor takes one of the page's three rows"
    pair.end([stream])


@pytest.mark.parametrize("kept", range(1, BLOCK + 2))
def test_the_context_after_every_count_of_kept_rows(stage: Stage, kept: int) -> None:
    """A prompt in chunks, then rounds whose drafts are forced to miss at every place, one of them over a page's end."""
    stream = stage.on_lane(1, PROMPTS[1][:58], temperature=1.0)
    pair = stage.started(stream)
    assert stage.knows(stage.drafter, stream)
    for _ in range(3):
        right = serial_draws(stage, stream, BLOCK)
        drafts = (*right[: kept - 1], *[(token + 1) % 60 for token in right[kept - 1 :]])
        pair.draft([stream], [BLOCK])
        pair.verify([stream], [tuple(drafts)], keep=kept)
        assert stage.knows(stage.drafter, stream)
    assert len(stream.context) == 59 + 3 * kept
    said = stage.says(stream)
    greedy = replace_sampling(stream)
    stage.drafter.open(greedy)
    assert pair.draft([greedy], [BLOCK]) == [tuple(said.tokens)]
    pair.end([stream])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_target_with_convolutions_and_experts(lfm2_stage: Stage) -> None:
    """Its features too are those of the whole text, whatever was rejected before and whoever stood beside."""
    lfm2_stage.drafter = lfm2_stage.fresh()
    streams = [lfm2_stage.on_lane(1, PROMPTS[1][:58], temperature=1.0), lfm2_stage.on_lane(0)]
    pair = lfm2_stage.started(*streams)
    for _ in range(4):
        pair.round(streams, [BLOCK, 3])
        assert all(lfm2_stage.knows(lfm2_stage.drafter, stream) for stream in streams)
    said = lfm2_stage.says(streams[1])
    assert pair.draft(streams[1:], [BLOCK]) == [tuple(said.tokens)]
    pair.end(streams)


def test_plain_rounds_are_known_too(stage: Stage) -> None:
    streams = [stage.on_lane(0), stage.on_lane(2)]
    pair = stage.started(*streams)
    for depths in ([0, 0], [0, 3], [0, 0], [2, 0]):
        pair.round(streams, depths)
        assert all(stage.knows(stage.drafter, stream) for stream in streams)
    pair.end(streams)


def test_rounds_without_drafts_are_taken_in_together(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    absorb = stage.drafter.step.absorb

    def counted(cache: Any, told: Told, table: Any) -> Any:
        rows.append(told.features.shape[0])
        return absorb(cache, told, table)

    streams = [stage.on_lane(0), stage.on_lane(2)]
    pair = stage.started(*streams)
    monkeypatch.setattr(stage.drafter.step, "absorb", counted)
    for _ in range(JOINED + 3):
        pair.round(streams, [0, 0])
    assert rows == [4 * JOINED]
    pair.round(streams, [0, 2])
    assert rows[:2] == [4 * JOINED, 4 * JOINED], "a hold reads all, and a round with drafts waits for nothing"
    assert len(rows) == 3
    assert not stage.drafter._waiting
    assert all(stage.knows(stage.drafter, stream) for stream in streams)
    rows.clear()  # Of the whole contexts that these were compared with.
    pair.round(streams, [0, 0])
    assert rows == []
    stage.target.pages.sync(stream_on(streams[1].lane, PROMPTS[1], memory=MEMORY, pages=[3]))
    pair.round(streams[:1], [0])
    assert rows == [4], "a lane has other pages now"
    unseen, plain = stage.unseen(), stage.on_lane(3)
    unseen.start(plain)
    unseen.round([plain], [0])
    assert rows == [4, 4], "nothing waits while rounds are others'"
    stage.target.release(plain)
    rows.clear()
    assert stage.knows(stage.drafter, streams[0])
    pair.end(streams)


def test_features_wait_no_longer_than_they_last() -> None:
    assert JOINED <= FEATURES_KEPT


def test_a_drafter_that_fails_leaves_nothing_for_the_next_forward(stage: Stage) -> None:
    """An array that a failed program should have made raises wherever it is used."""
    stream = stage.on_lane(0)
    pair = stage.started(stream)
    stage.drafter.hold([Ask(stream, 2)])
    lost = stage.target.unread.drafts
    lost.delete()
    stage.drafter.forget()
    assert not stage.drafter.holds_for(stream)
    pair.verify([stream], [()])
    pair.end([stream])


def test_drafts_after_rounds_without_are_the_oracles(random_stage: Stage) -> None:
    stage = random_stage
    stream = stage.on_lane(1)
    pair = stage.started(stream)
    for turn in range(2 * JOINED):
        for _ in range(turn % 3):
            pair.round([stream], [0])
        (drafts,) = pair.draft([stream], [BLOCK])
        assert drafts == tuple(stage.says(stream).tokens)
        pair.verify([stream], [()])
    pair.end([stream])


def test_rows_are_absorbed_for_opened_lanes_and_known_of_no_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    absorb = stage.drafter.step.absorb

    def counted(cache: Any, told: Told, table: Any) -> Any:
        calls.append(np.asarray(told.places))
        return absorb(cache, told, table)

    monkeypatch.setattr(stage.drafter.step, "absorb", counted)
    plain, drafted = stage.on_lane(0), stage.on_lane(2)
    pair = stage.started(drafted)
    stage.drafter._catch_up()  # A prompt of one token waits as the row of a round does.
    assert len(calls) == 1
    unseen = stage.unseen()
    unseen.start(plain)
    unseen.round([plain], [0])
    assert len(calls) == 1, "no row of a stream that drafts"
    pair.round([drafted, plain], [0, 0])
    assert len(calls) == 1, "rows of rounds without drafts wait"
    stage.drafter._catch_up()
    assert len(calls) == 2
    assert calls[1][0].tolist() == [2, 0, *[MEMORY.lanes] * 2]
    assert stage.drafter.can_draft(drafted)
    assert not stage.drafter.can_draft(plain)
    assert stage.knows(stage.drafter, drafted), "another lane's rows changed none of its own"
    pair.end([drafted])
    stage.target.release(plain)


def serial_draws(stage: Stage, stream: Stream, count: int) -> list[int]:
    """The target's next draws, by plain rounds of another stream that the drafter does not see."""
    twin = stream_on(3, stream.context, memory=MEMORY, temperature=1.0)
    pair = stage.unseen()
    pair.start(twin)
    for _ in range(count - 1):
        pair.round([twin], [0])
    stage.target.release(twin)
    return twin.context[-count:]


def replace_sampling(stream: Stream) -> Stream:
    """The same stream, drawn greedily."""
    twin = stream_on(stream.lane, stream.request.prompt, memory=MEMORY)
    twin.context = stream.context
    return twin


def test_steady_state_compiles_nothing(perfect_stage: Stage) -> None:
    before = compiles()
    for lanes in ((0,), (0, 1, 2)):
        streams = [perfect_stage.on_lane(lane, **RULES["penalised"]) for lane in lanes]
        pair = perfect_stage.started(*streams)
        for turn in range(20):
            pair.round(streams, [(turn + lane) % (BLOCK + 1) for lane in lanes])
        pair.end(streams)
    assert compiles() == before
