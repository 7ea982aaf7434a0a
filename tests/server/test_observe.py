"""One line a request, without its text."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from tests.server.conftest import MakeClient, MakeEngine
from tests.server.helpers import COMPLETIONS, Call, until
from tfjax.config import ServeConfig
from tfjax.server.app import build_app
from tfjax.server.service import Service


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, "tfjax.request")
    return lambda: [record.__dict__["fields"] for record in caplog.records if record.name == "tfjax.request"]


async def test_a_reply(make_client: MakeClient, lines: Any) -> None:
    client = make_client(api_key=("k1", "k2"))
    reply = await client.post(COMPLETIONS, json={"prompt": "hi", "max_tokens": 4}, headers={"x-api-key": "k2"})
    (line,) = lines()
    assert line["id"] == reply.json()["id"] == reply.headers["x-request-id"]
    assert (line["key"], line["route"], line["status"]) == ("key-2", "POST /v1/completions", 200)
    assert (line["prompt"], line["cached"], line["out"], line["accepted"]) == (2, 0, 4, "2/4")
    assert {"ms", "ttft_ms", "tok_s"} <= set(line)
    assert "prompt_text" not in line


async def test_refusals(make_client: MakeClient, lines: Any) -> None:
    client = make_client(api_key=("k",))
    await client.get("/v1/models")
    await client.post(COMPLETIONS, json={"prompt": "hi", "n": 99}, headers={"x-api-key": "k"})
    first, second = lines()
    assert (first["status"], first["key"], first["error"]) == (401, "-", "invalid_api_key")
    assert (second["status"], second["key"]) == (400, "key-1")


async def test_health_and_metrics_are_quiet(make_client: MakeClient, lines: Any) -> None:
    client = make_client()
    await client.get("/health")
    await client.get("/metrics")
    assert lines() == []


async def test_a_client_that_left_is_499(make_engine: MakeEngine, lines: Any) -> None:
    engine = make_engine(gate=threading.Semaphore(0))
    call = Call(build_app(Service(ServeConfig(), engine)), COMPLETIONS, {"prompt": "hi"})
    await until(lambda: engine.status().running == 1)
    call.leave()
    await asyncio.wait_for(call.task, 5)
    assert lines()[0]["status"] == 499


async def test_a_client_that_left_within_its_body_is_499_and_no_error(
    make_engine: MakeEngine, lines: Any, caplog: pytest.LogCaptureFixture
) -> None:
    call = Call(build_app(Service(ServeConfig(), make_engine())), COMPLETIONS, {"prompt": "hi"}, half=True)
    call.leave()
    await asyncio.wait_for(call.task, 5)
    assert lines()[0]["status"] == 499
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_texts_only_when_the_operator_asks(make_client: MakeClient, lines: Any) -> None:
    await make_client(log_prompts=True).post(COMPLETIONS, json={"prompt": "hi", "max_tokens": 4})
    assert (lines()[0]["prompt_text"], lines()[0]["reply_text"]) == ("hi", "Hell")
