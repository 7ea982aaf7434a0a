"""Bounds on what one request may send and on how many are open at once."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tfjax.server.errors import ApiError, response_of, unavailable

OPEN_PATHS = ("/health", "/health/ready")


class BodyLimit:
    """Counts body bytes as they come, whatever the headers promise; 413 beyond `max_bytes`."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "")
        if length.isdigit() and int(length[:20]) > self._max_bytes:
            await response_of(self._error())(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_bytes:
                raise self._error()
            return message

        await self._app(scope, counted, send)

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
