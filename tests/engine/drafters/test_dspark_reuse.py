"""What DSpark knows of contexts that began in another stream's pages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engine.drafters.pair import Pair, stream_on
from tests.engine.drafters.spark_pair import (
    BLOCK,
)
from tests.engine.drafters.spark_stage import LONG, MEMORY, Stage
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.stream import Stream

# Reused prompts.


def reusing(lane: int, other: Stream, pages: int) -> Stream:
    """A stream on another lane that shares the first pages of one before."""
    prompt = other.context[: pages * PAGE_ROWS + 3]
    each = MEMORY.pages // MEMORY.lanes
    own = list(range(each * lane, each * (lane + 1)))
    stream = stream_on(lane, prompt, memory=MEMORY, pages=[*other.pages[:pages], *own[pages:]])
    stream.cache_length = stream.reused = pages * PAGE_ROWS
    return stream


def start_reusing(stage: Stage, stream: Stream) -> Pair:
    pair = Pair(stage.target, stage.drafter)
    stage.target.prefill_begin(stream)
    stage.drafter.open(stream)
    for start in range(stream.reused, len(stream.request.prompt), PAGE_ROWS):
        stage.target.prefill_step(stream, start, min(start + PAGE_ROWS, len(stream.request.prompt)))
    stream.context.append(stage.target.first(stream).draws[0])
    pair.drafted[stream.request.id], pair.landed[stream.request.id] = [], []
    return pair


def test_a_reused_prompt_that_was_absorbed_is_known(stage: Stage) -> None:
    first = stage.on_lane(0, LONG)
    stage.started(first).end([first])
    second = reusing(1, first, 2)
    pair = start_reusing(stage, second)
    assert stage.knows(stage.drafter, second)
    assert pair.draft([second], [BLOCK]) == [tuple(stage.says(second).tokens)]
    pair.end([second])


@pytest.mark.parametrize("unseen", [1, 2])
def test_pages_of_a_stream_without_drafts_are_left_out(stage: Stage, unseen: int) -> None:
    """The first pages were filled by a stream that does not draft, the rest of them by one that does."""
    plain = stage.on_lane(0, LONG)
    other = stage.unseen()
    other.start(plain)
    stage.target.release(plain)
    second = reusing(1, plain, unseen)
    second.request = replace(second.request, prompt=LONG)
    second.context = list(LONG)
    pair = start_reusing(stage, second)
    said = stage.says(second, first_page=unseen)
    assert pair.draft([second], [BLOCK]) == [tuple(said.tokens)]
    assert said != stage.says(second)
    pair.round([second], [3])
    said = stage.says(second, first_page=unseen)
    assert pair.draft([second], [BLOCK]) == [tuple(said.tokens)]
    pair.end([second])


def test_a_page_that_another_stream_took_is_left_out(stage: Stage) -> None:
    """The drafter read a page once; since then a stream without drafts filled it anew, and that is what is reused."""
    first = stage.on_lane(0, tuple(reversed(LONG)))
    stage.started(first).end([first])
    plain = stage.on_lane(0, LONG)
    other = stage.unseen()
    other.start(plain)
    stage.target.release(plain)
    second = reusing(1, plain, 2)
    pair = start_reusing(stage, second)
    said = stage.says(second, first_page=2)
    assert pair.draft([second], [BLOCK]) == [tuple(said.tokens)]
    pair.end([second])


def test_a_lane_of_an_earlier_stream_has_no_context(stage: Stage) -> None:
    first = stage.on_lane(0, LONG)
    pair = stage.started(first)
    pair.round([first], [BLOCK])
    pair.end([first])
    assert not stage.drafter.can_draft(first)
    second = stage.on_lane(0)
    pair = stage.started(second)
    assert pair.draft([second], [BLOCK]) == [tuple(stage.says(second).tokens)]
    pair.end([second])


def test_a_stream_that_waited_goes_on_as_before(stage: Stage) -> None:
    """While a stream is paused others use its drafter; a page that it had in advance became another."""
    paused, other = stage.on_lane(0), stage.on_lane(1)
    pair = stage.started(paused, other)
    pair.round([paused, other], [2, 2])
    paused.pages[1:] = []
    for _ in range(3):
        pair.round([other], [4])
    paused.pages.append(MEMORY.pages - 1)
    assert stage.knows(stage.drafter, paused)
    while len(paused.context) < PAGE_ROWS + 3:
        pair.round([paused, other], [3, 0])
    assert stage.knows(stage.drafter, paused)
    assert pair.draft([paused], [BLOCK]) == [tuple(stage.says(paused).tokens)]
    pair.end([paused, other])
