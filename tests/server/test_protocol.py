"""How uvicorn is set up; tests over sockets are in test_raw_http.py."""

from __future__ import annotations

import asyncio
from typing import cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tfjax.config import ServeConfig
from tfjax.server.protocol import uvicorn_config


async def test_a_cancelled_request_ends_without_an_error() -> None:
    ended = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await receive()
        finally:
            ended.set()

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {}

    async def send(message: Message) -> None: ...

    served = cast("ASGIApp", uvicorn_config(app, ServeConfig()).app)
    task = asyncio.ensure_future(served({"type": "http"}, receive, send))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait_for(task, 5)
    assert ended.is_set()
