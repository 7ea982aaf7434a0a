"""Body size, content type, and how many requests are open."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.server.conftest import MakeClient, MakeEngine
from tests.server.helpers import CHAT, COMPLETIONS, error_of, until
from tfjax.server import app as app_module

JSON = {"content-type": "application/json"}


async def test_a_body_beyond_the_limit_is_413(make_client: MakeClient) -> None:
    client = make_client(max_body_bytes=2000)
    fits = b'{"prompt": "hi", "max_tokens": 1, "x": "' + b"y" * 1900 + b'"}'
    assert (await client.post(COMPLETIONS, content=fits, headers=JSON)).status_code == 200
    reply = await client.post(COMPLETIONS, content=fits + b" " * 100, headers=JSON)
    assert reply.status_code == 413
    assert "2000" in error_of(reply)["message"]


async def test_bytes_are_counted_whatever_the_headers_promise(make_client: MakeClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 100

    reply = await make_client(max_body_bytes=2000).post(COMPLETIONS, content=endless(), headers=JSON)
    assert reply.status_code == 413


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
async def test_another_content_type_is_415(client: httpx.AsyncClient, kind: str | None) -> None:
    for route in (COMPLETIONS, CHAT, "/tokenize", "/detokenize"):
        headers = {} if kind is None else {"content-type": kind}
        reply = await client.post(route, content=b'{"prompt": "hi"}', headers=headers)
        assert reply.status_code == 415
        error_of(reply)


async def test_json_with_a_charset(client: httpx.AsyncClient) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    body = b'{"prompt": "hi", "max_tokens": 1}'
    assert (await client.post(COMPLETIONS, content=body, headers=headers)).status_code == 200


async def test_open_requests_are_limited_and_health_passes(
    make_client: MakeClient, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "MAX_OPEN", 1)
    gate = threading.Semaphore(0)
    engine = make_engine(gate=gate)
    client = make_client(engine)
    first = asyncio.create_task(client.post(COMPLETIONS, json={"prompt": "hi", "max_tokens": 1}))
    await until(lambda: engine.status().running == 1)
    reply = await client.get("/v1/models")
    assert (reply.status_code, error_of(reply)["code"]) == (503, "overloaded")
    assert (await client.get("/health")).status_code == 200
    gate.release(10)
    assert (await first).status_code == 200
    assert (await client.get("/v1/models")).status_code == 200


async def test_every_reply_carries_the_security_headers(client: httpx.AsyncClient) -> None:
    replies = [await client.get(path) for path in ("/health", "/nope", "/metrics", "/v1/models", "/openapi.json")]
    replies += [await client.put("/health"), await client.post(COMPLETIONS, json={"prompt": "hi", "max_tokens": 1})]
    replies += [await client.post(COMPLETIONS, json={"prompt": "hi", "stream": True, "max_tokens": 1})]
    for reply in replies:
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["x-request-id"]
        assert "server" not in reply.headers
