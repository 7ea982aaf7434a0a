"""Lets scripts of named web origins read replies. Without --cors-origin nothing is sent and browsers refuse."""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tfjax.server.fields import IGNORED_HEADER

METHODS = b"GET, POST"
ALLOWED_HEADERS = b"authorization, content-type, x-api-key"
MAX_AGE_S = b"600"


class Cors:
    """Answers preflights of allowed origins and marks replies to them. Cookies are never involved."""

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._origins = frozenset(origins)

    def is_preflight(self, scope: Scope) -> bool:
        """Whether this is a browser's question about an allowed origin; it carries no key and reaches no route."""
        headers = Headers(scope=scope)
        asks = scope["method"] == "OPTIONS" and "access-control-request-method" in headers
        return asks and self._allows(headers.get("origin"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._origins:
            await self._app(scope, receive, send)
            return
        origin = Headers(scope=scope).get("origin")
        if self.is_preflight(scope):
            await self._answer(origin or "", send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(b"vary", b"Origin")]
                if self._allows(origin):
                    extra += [
                        (b"access-control-allow-origin", (origin or "").encode("latin-1")),
                        (b"access-control-expose-headers", f"{IGNORED_HEADER}, X-Request-Id, Retry-After".encode()),
                    ]
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        await self._app(scope, receive, marked)

    def _allows(self, origin: str | None) -> bool:
        return origin is not None and ("*" in self._origins or origin in self._origins)

    async def _answer(self, origin: str, send: Send) -> None:
        headers = [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", ALLOWED_HEADERS),
            (b"access-control-max-age", MAX_AGE_S),
            (b"vary", b"Origin"),
        ]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
