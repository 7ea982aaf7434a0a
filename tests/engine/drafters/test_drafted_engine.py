"""The whole engine with a drafter on the device: the same tokens as without, whatever the drafter is worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.drafters.pair import PROMPTS, another, drafting, loaded, memory_of
from tests.engine.scripted_engine import ByteTokenizer, Receiver
from tests.models.tiny import TINY
from tfjax.engine.api import Generation, Sampling
from tfjax.engine.compiles import compiles
from tfjax.engine.drafters.small_model import SmallModel
from tfjax.engine.engine import Engine, Served
from tfjax.engine.target import TargetBackend
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.proposer import Silent
from tfjax.lanes.settings import Settings

MEMORY = memory_of()
LENGTH = 40
KINDS = {
    "greedy": Sampling(temperature=0.0),
    "seeded": Sampling(temperature=0.8, top_p=0.95, seed=11),
    "penalised": Sampling(temperature=1.0, seed=2, repetition_penalty=1.3, presence_penalty=0.4, top_k=30),
    "biased": Sampling(temperature=0.7, seed=3, logit_bias=((5, 4.0), (9, -100.0)), min_tokens=6),
}
CHEAP = {1: {1: 0.01, 8: 0.02}, 4: {1: 0.01, 8: 0.02}}
GRIDS: dict[str, Any] = {"priced": CHEAP, "unpriced": {}}


@contextmanager
def engine_of(target: TargetBackend, drafter: SmallModel, *, copies: bool = False) -> Iterator[Engine]:
    settings = Settings(
        lanes=MEMORY.lanes, context=MEMORY.context, pages=MEMORY.pages, page_rows=PAGE_ROWS, vocab_size=TINY.vocab,
        draft_tokens=8, first_width=3,
    )  # fmt: skip
    tokenizer: Any = ByteTokenizer()
    target.window_ms = {4: 5.0, 32: 5.5}
    backend = Drafted(target, drafter, TINY.vocab)
    engine = Engine(backend, settings, Served("tiny", tokenizer, ()), proposer=None if copies else lambda _: Silent())
    try:
        yield engine
    finally:
        engine.close()


def replies(engine: Engine, asked: Sequence[tuple[int, Sampling]], *, draft: bool, alone: bool) -> list[Receiver]:
    receivers = []
    for number, (prompt, sampling) in enumerate(asked):
        receivers.append(Receiver())
        engine.submit(Generation(f"r{number}", PROMPTS[prompt], LENGTH, sampling, draft=draft), receivers[-1])
        if alone:
            receivers[-1].wait()
    for receiver in receivers:
        assert receiver.wait().reason == "length"
    return receivers


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("streams", [1, 3, 4])
@pytest.mark.parametrize("weights", ["the target's", "others"])
def test_drafts_change_no_token(
    target: TargetBackend, perfect: SmallModel, weights: str, streams: int, grid: Any
) -> None:
    drafter = another(perfect, drafting(loaded(seed=0 if weights == "the target's" else 4)))
    drafter.hold_ms = grid
    asked = [(prompt, sampling) for sampling in KINDS.values() for prompt in range(streams)]
    with engine_of(target, drafter) as engine:
        plain = replies(engine, asked, draft=False, alone=True)
        drafted = replies(engine, asked, draft=True, alone=streams == 1)
    assert [one.tokens for one in drafted] == [one.tokens for one in plain]
    stats = [one.wait().stats for one in drafted]
    assert sum(one.drafted for one in stats) > 0
    if weights == "the target's":
        assert all(one.accepted == one.drafted for one in stats)
        assert sum(one.accepted for one in stats) > sum(one.rounds for one in stats)
    assert not any(one.wait().stats.drafted for one in plain)


def test_copies_plain_requests_and_drafts_side_by_side(target: TargetBackend, perfect: SmallModel) -> None:
    drafter = another(perfect, drafting(loaded(seed=4)))
    drafter.hold_ms = CHEAP
    asked = [(number % 4, list(KINDS.values())[number // 4]) for number in range(16)]
    with engine_of(target, drafter, copies=True) as engine:
        serial = replies(engine, asked, draft=False, alone=True)
        before = compiles()
        mixed = [Receiver() for _ in asked]
        for number, ((prompt, sampling), receiver) in enumerate(zip(asked, mixed, strict=True)):
            engine.submit(Generation("r", PROMPTS[prompt], LENGTH, sampling, draft=number % 3 > 0), receiver)
        for one, other in zip(mixed, serial, strict=True):
            one.wait()
            assert one.tokens == other.tokens
    assert compiles() == before


def test_a_reply_longer_than_the_drafters_context_goes_on_without_drafts(
    target: TargetBackend, perfect: SmallModel
) -> None:
    drafter = another(perfect, drafting(loaded(replace(TINY, context=30))))
    drafter.hold_ms = CHEAP
    with engine_of(target, drafter) as engine:
        (plain,) = replies(engine, [(0, KINDS["seeded"])], draft=False, alone=True)
        (drafted,) = replies(engine, [(0, KINDS["seeded"])], draft=True, alone=True)
    stats = drafted.wait().stats
    assert drafted.tokens == plain.tokens
    assert stats.drafted == stats.accepted > 0
    assert stats.rounds > 19
