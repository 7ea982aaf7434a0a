"""The whole engine with DSpark: the same tokens as without, alone, together, after others and after reused prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from tests.engine.drafters.pair import PROMPTS
from tests.engine.drafters.spark_stage import LONG, MEMORY, Stage
from tests.engine.drafters.test_drafted_engine import CHEAP, KINDS
from tests.engine.scripted_engine import ByteTokenizer, Receiver
from tests.models.tiny import TINY
from tfjax.engine.api import Generation, Sampling
from tfjax.engine.compiles import compiles
from tfjax.engine.drafters.starting import hold_on_device
from tfjax.engine.engine import Engine, Served
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.proposer import Silent
from tfjax.lanes.settings import Settings
from tfjax.models.llama import Llama

LENGTH = 40


@contextmanager
def engine_of(stage: Stage, *, grid: Any = CHEAP, prompt_pages: int = 0, held: bool = False) -> Iterator[Engine]:
    settings = Settings(
        lanes=MEMORY.lanes, context=MEMORY.context, pages=MEMORY.pages, page_rows=PAGE_ROWS, vocab_size=TINY.vocab,
        draft_tokens=8, first_width=3, prompt_pages=prompt_pages,
    )  # fmt: skip
    tokenizer: Any = ByteTokenizer()
    stage.target.window_ms = {4: 5.0, 32: 5.5}
    stage.drafter = stage.fresh()
    stage.drafter.hold_ms = grid
    if held:
        hold_on_device(stage.drafter)
    backend = Drafted(stage.target, stage.drafter, TINY.vocab)
    ticks = count()  # whether drafts pay must not depend on what else the machine does
    served = Served("tiny", tokenizer, ())
    engine = Engine(backend, settings, served, proposer=lambda _: Silent(), clock=lambda: next(ticks) / 1000)
    try:
        yield engine
    finally:
        engine.close()
        stage.target.held = None


def ask(engine: Engine, prompt: Sequence[int], sampling: Sampling, **changes: Any) -> Receiver:
    receiver = Receiver()
    asked = Generation("r", tuple(prompt), LENGTH, sampling, ignore_eos=True)
    engine.submit(replace(asked, **changes), receiver)
    return receiver


def serial(engine: Engine, asked: Sequence[tuple[Sequence[int], Sampling]]) -> list[list[int]]:
    """Replies without drafts, one after the other."""
    replies = []
    for prompt, sampling in asked:
        receiver = ask(engine, prompt, sampling, draft=False, cache_salt=f"serial {len(replies)}")
        assert receiver.wait().stats.drafted == 0
        replies.append(receiver.tokens)
    return replies


BOTH_WAYS = pytest.mark.parametrize("held", [False, True], ids=["read", "held"])
SLOW = (pytest.mark.slow, pytest.mark.timeout(600))


@pytest.fixture(params=["perfect_stage", "random_stage", pytest.param("lfm2_stage", marks=SLOW)])
def either(request: pytest.FixtureRequest) -> Stage:
    """A Llama whose drafter knows what it says next, and a Llama and an LFM2 with experts whose drafter is random."""
    stage: Stage = request.getfixturevalue(request.param)
    return stage


@BOTH_WAYS
@pytest.mark.parametrize(("streams", "grid"), [(1, {}), (1, CHEAP), (4, CHEAP), (8, {}), (16, CHEAP)])
def test_drafts_change_no_token(either: Stage, streams: int, grid: Any, held: bool) -> None:
    """Up to four together; those of 8 and 16 take the lanes of those before them."""
    kinds = list(KINDS.values())
    asked = [(PROMPTS[number % 4], kinds[(number + number // 4) % 4]) for number in range(streams)]
    with engine_of(either, grid=grid, held=held) as engine:
        expected = serial(engine, asked)
        receivers = [ask(engine, *one) for one in asked]
        stats = [receiver.wait().stats for receiver in receivers]
    assert [receiver.tokens for receiver in receivers] == expected
    assert sum(one.drafted for one in stats) > 0
    if knows(either):
        assert all(one.accepted == one.drafted for one in stats)
        assert sum(one.accepted for one in stats) > sum(one.rounds for one in stats)


def knows(stage: Stage) -> bool:
    module: Any = stage.model.module
    return isinstance(module, Llama) and not np.asarray(module.layers[0].attention.out.weight[...]).any()


def test_drafts_beside_plain_replies(random_stage: Stage) -> None:
    asked = [(PROMPTS[number % 4], list(KINDS.values())[number // 4]) for number in range(16)]
    with engine_of(random_stage) as engine:
        expected = serial(engine, asked)
        before = compiles()
        receivers = [ask(engine, *one, draft=number % 3 > 0) for number, one in enumerate(asked)]
        assert [receiver.wait() and receiver.tokens for receiver in receivers] == expected
    assert compiles() == before


@BOTH_WAYS
@pytest.mark.parametrize("kind", ["greedy", "seeded"])
def test_a_cancelled_streams_lane_is_taken_by_another(either: Stage, kind: str, held: bool) -> None:
    """Replies cancelled while they draft; what replaces them, and what goes on beside them, stays as it is alone."""
    sampling = KINDS[kind]
    asked = [(prompt, sampling) for prompt in PROMPTS]
    with engine_of(either, held=held) as engine:
        expected = serial(engine, asked)
        going_on = ask(engine, *asked[0])
        tickets = []
        for prompt in (LONG, LONG[:90], LONG[:20]):
            receiver = Receiver()
            tickets.append((engine.submit(Generation("c", prompt, 100, sampling, ignore_eos=True), receiver), receiver))
        for ticket, receiver in tickets:
            assert receiver.started.wait(20)
            ticket.cancel()
        replacing = [ask(engine, *one) for one in asked[1:]]
        assert [receiver.wait() and receiver.tokens for receiver in (going_on, *replacing)] == expected
        assert {receiver.wait().reason for _, receiver in tickets} <= {"cancelled", "length"}


@pytest.mark.parametrize("first_drafts", [True, False], ids=["by a drafted reply", "by a plain reply"])
@pytest.mark.parametrize("kind", ["greedy", "seeded"])
@BOTH_WAYS
def test_prompts_that_are_kept(either: Stage, kind: str, first_drafts: bool, held: bool) -> None:
    """A prompt and a reply that others go on from, filled by a stream that the drafter read, or did not."""
    sampling, later = KINDS[kind], (3, 1, 4)
    with engine_of(either, prompt_pages=8, held=held) as engine:
        first = ask(engine, LONG[:120], sampling, draft=first_drafts)
        assert first.wait().stats.cached_tokens == 0
        longer = (*LONG[:120], *first.tokens, *later)
        expected = serial(engine, [(longer, sampling)])[0]
        for draft in (True, False, True):
            again = ask(engine, longer, sampling, draft=draft)
            assert again.wait().stats.cached_tokens == 128
            assert again.tokens == expected
    if knows(either):
        assert again.wait().stats.accepted == again.wait().stats.drafted > 0


@BOTH_WAYS
def test_memory_that_is_short_pauses_and_resumes(either: Stage, held: bool) -> None:
    """More streams than pages for all of them: some wait while others go on, and draft on later."""
    asked = [(prompt, KINDS["seeded"]) for prompt in (LONG, LONG[:100], LONG[:110], LONG[:130])]
    with engine_of(either) as engine:
        expected = serial(engine, asked)
    settings = Settings(
        lanes=MEMORY.lanes, context=MEMORY.context, pages=10, page_rows=PAGE_ROWS, vocab_size=TINY.vocab,
        draft_tokens=8, first_width=3, growth_rows=8,
    )  # fmt: skip
    either.drafter = either.fresh()
    either.drafter.hold_ms = CHEAP
    if held:
        hold_on_device(either.drafter)
    tokenizer: Any = ByteTokenizer()
    backend = Drafted(either.target, either.drafter, TINY.vocab)
    engine = Engine(backend, settings, Served("tiny", tokenizer, ()), proposer=lambda _: Silent())
    try:
        receivers = [ask(engine, *one) for one in asked]
        assert [receiver.wait() and receiver.tokens for receiver in receivers] == expected
    finally:
        engine.close()
        either.target.held = None


@BOTH_WAYS
def test_twenty_rounds_compile_nothing(perfect_stage: Stage, held: bool) -> None:
    with engine_of(perfect_stage, held=held) as engine:
        ask(engine, PROMPTS[0], KINDS["penalised"]).wait()
        before = compiles()
        receivers = [ask(engine, prompt, KINDS["penalised"], max_tokens=100) for prompt in PROMPTS]
        rounds = sum(receiver.wait().stats.rounds for receiver in receivers)
    assert rounds > 20
    assert compiles() == before


@BOTH_WAYS
@pytest.mark.parametrize("kind", ["greedy", "penalised"])
def test_held_drafts_are_not_read_before_they_are_checked(
    either: Stage, kind: str, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Any] = []
    with engine_of(either, grid={}, held=held) as engine:
        read = either.drafter.read
        monkeypatch.setattr(either.drafter, "read", lambda tickets: (reads.append(tickets), read(tickets))[1])
        stats = [ask(engine, prompt, KINDS[kind]).wait().stats for prompt in PROMPTS]
    assert bool(reads) == (not held)
    assert sum(one.drafted for one in stats) > 0
    if knows(either):
        assert all(one.accepted == one.drafted for one in stats)
