"""Clients that leave or do not read: at every stage the lane is freed at once."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.server.conftest import MakeEngine
from tests.server.fake_engine import FakeEngine, says
from tests.server.helpers import COMPLETIONS, Call, until
from tfjax.config import ServeConfig
from tfjax.server.app import build_app
from tfjax.server.service import Service

ENDLESS = says("x", end=None)


class Stage:
    """An application and the parts that the tests look at."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.service = Service(ServeConfig(), engine)
        self.app = build_app(self.service)

    def call(self, *, stream: bool, stalls: str = "", **ask: object) -> Call:
        return Call(self.app, COMPLETIONS, {"prompt": "hi", "stream": stream, **ask}, stalls=stalls)

    def gone(self) -> float:
        return float(self.service.metrics._gone.labels("fake-1")._value.get())

    async def freed(self) -> None:
        await until(lambda: self.engine.status().running + self.engine.status().waiting == 0)
        assert self.service.in_flight == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_while_tokens_come(make_engine: MakeEngine, stream: bool) -> None:
    stage = Stage(make_engine(ENDLESS, round_s=0.002))
    call = stage.call(stream=stream)
    await until(lambda: stage.engine.rounds > 5)
    call.leave()
    await asyncio.wait_for(call.task, 5)
    rounds = stage.engine.rounds
    await stage.freed()
    assert stage.engine.rounds - rounds <= 2
    assert list(stage.engine.ended.values()) == ["cancelled"]
    assert stage.gone() == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_while_the_prompt_is_read(make_engine: MakeEngine, stream: bool) -> None:
    gate = threading.Semaphore(0)
    stage = Stage(make_engine(ENDLESS, prefill_rounds=1000, gate=gate))
    call = stage.call(stream=stream)
    await until(lambda: stage.engine.status().running == 1)
    call.leave()
    await asyncio.wait_for(call.task, 5)
    await stage.freed()
    assert call.sent == []
    assert stage.gone() == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_while_queued(make_engine: MakeEngine, stream: bool) -> None:
    stage = Stage(make_engine(ENDLESS, parallel=1, gate=threading.Semaphore(0)))
    first = stage.call(stream=False)
    await until(lambda: stage.engine.status().running == 1)
    second = stage.call(stream=stream)
    await until(lambda: stage.engine.status().waiting == 1)
    second.leave()
    await asyncio.wait_for(second.task, 5)
    await until(lambda: stage.engine.status().waiting == 0)
    assert stage.engine.status().running == 1
    assert stage.gone() == 1
    first.leave()
    await asyncio.wait_for(first.task, 5)
    await stage.freed()


async def test_leaving_with_several_choices_frees_all_lanes(make_engine: MakeEngine) -> None:
    stage = Stage(make_engine(ENDLESS, round_s=0.002))
    call = stage.call(stream=True, n=4)
    await until(lambda: stage.engine.rounds > 3)
    call.leave()
    await asyncio.wait_for(call.task, 5)
    await stage.freed()
    assert sorted(stage.engine.ended.values()) == ["cancelled"] * 4


@pytest.mark.parametrize("message", ["http.response.start", "http.response.body"])
async def test_a_reader_that_stalls_is_gone(make_engine: MakeEngine, message: str) -> None:
    stage = Stage(make_engine(ENDLESS, round_s=0.001))
    stage.service.stalled_s = 0.05
    call = stage.call(stream=True, stalls=message)
    await asyncio.wait_for(call.task, 5)
    await stage.freed()
    assert stage.gone() == 1


async def test_a_finished_reply_is_no_disconnection(make_engine: MakeEngine) -> None:
    stage = Stage(make_engine())
    for stream in (False, True):
        call = stage.call(stream=stream)
        await asyncio.wait_for(call.task, 5)
        assert call.sent[-1].get("more_body", False) is False
    assert stage.gone() == 0
    assert set(stage.engine.ended.values()) == {"stop"}


async def test_the_server_that_stops_cuts_streams_with_an_error_event(make_engine: MakeEngine) -> None:
    stage = Stage(make_engine(ENDLESS, round_s=0.002))
    stream, whole = stage.call(stream=True), stage.call(stream=False)
    await until(lambda: stage.engine.rounds > 5)
    stage.service.cut()
    assert await stage.service.idle(5)
    await asyncio.gather(stream.task, whole.task)
    assert stream.body.endswith(b"data: [DONE]\n\n")
    assert b'"code":"stopped"' in stream.body.split(b"\n\n")[-3]
    assert whole.sent[0]["status"] == 503
    await stage.freed()
    assert stage.gone() == 0
