"""Bounds on what one request may send and on how many are open at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tfjax.server.errors import ApiError, response_of, unavailable

OPEN_PATHS = ("/health", "/health/ready")
MAX_DISCARDED_BYTES = 64 * 1024 * 1024
DISCARD_S = 5.0


class HeaderLimit:
    """431 beyond `max_bytes` of headers. The protocol's own limit sees only heads that come in several reads."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "http"
            and sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > self._max_bytes
        ):
            error = ApiError(431, f"The headers are longer than {self._max_bytes} bytes.", code="headers_too_large")
            await response_of(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class BodyLimit:
    """Counts body bytes as they come, whatever the headers promise; 413 beyond `max_bytes`."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        if length.isdigit() and int(length[:20]) > self._max_bytes:
            if "expect" not in headers:
                await self._discard(receive)
            await response_of(self._error())(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_bytes:
                await self._discard(receive)
                raise self._error()
            return message

        await self._app(scope, counted, send)

    async def _discard(self, receive: Receive) -> None:
        """Reads on for a while: most clients read an answer only when they have sent everything."""
        left = MAX_DISCARDED_BYTES
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_S):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return

    def _error(self) -> ApiError:
        text = f"The body is longer than {self._max_bytes} bytes (--max-body-bytes)."
        return ApiError(413, text, code="body_too_large")


class OpenLimit:
    """Refuses requests beyond `limit` open ones; health checks always pass."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        if self._open >= self._limit:
            await response_of(unavailable(f"{self._open} requests are open already; try again.", "overloaded"))(
                scope, receive, send
            )
            return
        self._open += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open -= 1
