"""The master oracle where rounds are queued behind others that nobody has read: no token changes.

Drafts land about as often as not, so that windows end everywhere; the target's rows depend on all before them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.drafters.half_right import half_right
from tests.engine.drafters.pair import PROMPTS
from tests.engine.drafters.spark_stage import LONG, Stage
from tests.engine.drafters.test_drafted_engine import CHEAP, KINDS
from tests.engine.drafters.test_dspark_engine import SLOW, ask, engine_of
from tests.engine.drafters.test_round_transfers import lanes_of
from tfjax.engine.api import Sampling
from tfjax.engine.drafters.starting import hold_on_device
from tfjax.engine.engine import Engine
from tfjax.engine.rows_buffer import RowsBuffer
from tfjax.lanes.stream import Request
from tfjax.lanes.window import Window

TOKENS = 90
Asked = tuple[Sequence[int], Sampling]


@pytest.fixture(params=["random_stage", "handed_stage", pytest.param("lfm2_stage", marks=SLOW)])
def stage(request: pytest.FixtureRequest) -> Stage:
    """A Llama, also one with results in memory of earlier ones, and an LFM2 with short convolutions and experts."""
    found: Stage = request.getfixturevalue(request.param)
    return found


def requests() -> dict[int, Asked]:
    """Sixteen of them by their seeds: four prompts, drawn from in four ways."""
    prompts = [*PROMPTS[:3], LONG]
    return {
        4 * number + place: (prompt, replace(kind, seed=4 * number + place))
        for number, kind in enumerate(KINDS.values())
        for place, prompt in enumerate(prompts)
    }


@contextmanager
def counted_moves(stage: Stage) -> Iterator[list[int]]:
    """Rows of the forwards that were queued behind one that was not read, where either of them has drafts."""
    target: Any = stage.target
    moves: list[int] = []
    real = target._put_behind

    def counted(windows: Sequence[Window], buffer: RowsBuffer) -> None:
        if any(window.held for window in windows) or any(window.rows > 1 for window in target._latest.windows):
            moves.append(len(buffer["lane"]))
        real(windows, buffer)

    target._put_behind = counted
    try:
        yield moves
    finally:
        del target._put_behind


def texts(engine: Engine, asked: Mapping[int, Asked]) -> dict[int, tuple[int, ...]]:
    """Prompt and reply of each without drafts, one after another."""
    found = {}
    for seed, (prompt, sampling) in asked.items():
        receiver = ask(engine, prompt, sampling, draft=False, max_tokens=TOKENS, cache_salt=f"serial {seed}")
        receiver.wait()
        found[seed] = (*prompt, *receiver.tokens)
    return found


@pytest.mark.parametrize("wrong_every", [2, 3, 7, 1000])
@pytest.mark.parametrize("company", [1, 4])
def test_no_token_changes(stage: Stage, company: int, wrong_every: int) -> None:
    asked = requests()
    with engine_of(stage, held=True) as engine, counted_moves(stage) as moves:
        serial = texts(engine, asked)
        assert not moves
        with half_right(stage.drafter, serial, wrong_every):
            accepted, drafted = 0, 0
            waves = [list(asked)[first : first + company] for first in range(0, len(asked), company)]
            for wave in waves if company > 1 else waves[::3]:
                receivers = {seed: ask(engine, *asked[seed], max_tokens=TOKENS) for seed in wave}
                for seed, receiver in receivers.items():
                    stats = receiver.wait().stats
                    assert (*asked[seed][0], *receiver.tokens) == serial[seed], seed
                    accepted, drafted = accepted + stats.accepted, drafted + stats.drafted
    assert len(moves) > 20
    assert 0 < accepted < drafted or wrong_every == 1000


def test_lanes_are_taken_over_while_rounds_are_unread(stage: Stage) -> None:
    """Sixteen requests for four lanes: each that ends leaves its place in the round in flight, and another begins."""
    asked = requests()
    with engine_of(stage, held=True) as engine, counted_moves(stage) as moves:
        serial = texts(engine, asked)
        with half_right(stage.drafter, serial, 5):
            lengths = {seed: TOKENS - 3 * seed for seed in asked}
            receivers = {seed: ask(engine, *one, max_tokens=lengths[seed]) for seed, one in asked.items()}
            for seed, receiver in receivers.items():
                receiver.wait()
                prompt = asked[seed][0]
                assert (*prompt, *receiver.tokens) == serial[seed][: len(prompt) + lengths[seed]], seed
    assert len(moves) > 20


@pytest.mark.parametrize("kind", ["greedy", "seeded"])
def test_stop_tokens_in_the_midst_of_drafts(stage: Stage, kind: str) -> None:
    """A reply ends with a token that a round in flight has gone past already; the others' replies do not notice."""
    asked = {seed: one for seed, one in requests().items() if one[1].temperature == KINDS[kind].temperature}
    with engine_of(stage, held=True) as engine:
        serial = texts(engine, asked)
        with half_right(stage.drafter, serial, 6):
            for at in (20, 21, 22, 23, 24):
                stops = {seed: text[len(asked[seed][0]) + at] for seed, text in serial.items() if seed % 2}
                receivers = {
                    seed: ask(
                        engine, *one, max_tokens=TOKENS, ignore_eos=seed not in stops,
                        stop_token_ids=(stops[seed],) if seed in stops else (),
                    )
                    for seed, one in asked.items()
                }  # fmt: skip
                for seed, receiver in receivers.items():
                    receiver.wait()
                    reply = serial[seed][len(asked[seed][0]) :]
                    end = reply.index(stops[seed]) + 1 if seed in stops else TOKENS
                    assert tuple(receiver.tokens) == reply[:end], seed


def test_the_drafter_reads_every_row_where_it_came_to_stand(random_stage: Stage) -> None:
    """Its rows are those of the whole context absorbed in one call, though it took them before they landed."""
    stage, asked = random_stage, {seed: requests()[seed] for seed in (0, 5, 10, 15)}
    with engine_of(stage, held=True) as engine:
        serial = texts(engine, asked)
    stage.drafter = stage.fresh()
    stage.drafter.hold_ms = CHEAP
    hold_on_device(stage.drafter)
    lanes = lanes_of(stage)
    with half_right(stage.drafter, serial, 4), counted_moves(stage) as moves:
        streams = [lanes.admit(Request(f"{seed}", *one[:1], TOKENS, sampling=one[1])) for seed, one in asked.items()]
        for _ in range(18):
            lanes.round()
        assert len(moves) > 4
        assert all(stage.knows(stage.drafter, stream) for stream in streams)
        assert all(stage.drafter.can_draft(stream) for stream in streams)
        for stream in streams:
            lanes.cancel(stream)
        lanes.round()
    stage.target.held = None


def test_log_probabilities_are_those_of_serial_replies(stage: Stage) -> None:
    seed, (prompt, sampling) = 5, requests()[5]
    sampling = replace(sampling, logprobs=3)
    with engine_of(stage, held=True) as engine:
        plain = ask(engine, prompt, sampling, draft=False, max_tokens=TOKENS, cache_salt="plain")
        plain.wait()
        with half_right(stage.drafter, {seed: (*prompt, *plain.tokens)}, 4), counted_moves(stage) as moves:
            drafted = ask(engine, prompt, sampling, max_tokens=TOKENS)
            drafted.wait()
    assert moves
    assert drafted.tokens == plain.tokens
    assert [entry for event in drafted.events for entry in event.logprobs or ()] == [
        entry for event in plain.events for entry in event.logprobs or ()
    ]


def test_streams_join_rounds_that_are_unread(stage: Stage) -> None:
    """Each comes while those before it have rounds in flight: its first rows are known there, theirs are not."""
    asked = {seed: one for seed, one in requests().items() if seed % 4 < 3}
    joined: list[int] = []
    target: Any = stage.target
    real = target.verify

    def verify(windows: Sequence[Window]) -> Any:
        known = sum(window.pending is not None for window in windows)
        joined.append(known if known < len(windows) else 0)
        return real(windows)

    with engine_of(stage, held=True) as engine:
        serial = texts(engine, asked)
        target.verify = verify
        try:
            with half_right(stage.drafter, serial, 4):
                receivers = {}
                for seed, one in asked.items():
                    receivers[seed] = ask(engine, *one, max_tokens=TOKENS, draft=seed % 5 > 0)
                    while len(receivers[seed].tokens) < 9:
                        time.sleep(0.001)
                for seed, receiver in receivers.items():
                    receiver.wait()
                    assert (*asked[seed][0], *receiver.tokens) == serial[seed], seed
        finally:
            del target.verify
    assert sum(map(bool, joined)) >= len(asked) // 2
