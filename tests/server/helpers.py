"""What several test files do with replies."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import httpx
from starlette.types import ASGIApp, Message

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


def chunks(reply: httpx.Response) -> list[dict[str, Any]]:
    """The objects of a stream, which must end with [DONE]; pings are left out."""
    assert reply.headers["content-type"].startswith("text/event-stream"), reply.text
    frames = [frame for frame in reply.text.split("\n\n") if frame and not frame.startswith(":")]
    assert all(frame.startswith("data: ") for frame in frames)
    assert frames[-1] == "data: [DONE]"
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-1]]


def error_of(reply: httpx.Response) -> dict[str, Any]:
    """The error object, after checking its shape."""
    body = reply.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    error: dict[str, Any] = body["error"]
    return error


async def until(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Waits for something that other threads bring about."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it never came true"
        await asyncio.sleep(0.005)


class Call:
    """One request straight into an ASGI application; the client leaves when `leave` is called.

    `stalls` is the type of the messages that are never taken from the application.
    """

    def __init__(self, app: ASGIApp, path: str, body: object, *, stalls: str = "", half: bool = False) -> None:
        self.sent: list[Message] = []
        self._gone = asyncio.Event()
        self._body: bytes | None = json.dumps(body).encode()
        self._stalls = stalls
        self._half = half
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": headers,
            "server": ("127.0.0.1", 8080),
            "client": ("127.0.0.1", 5),
        }
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    def leave(self) -> None:
        self._gone.set()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": self._half}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)
        if message["type"] == self._stalls:
            await asyncio.Event().wait()
