"""Refuses foreign Host headers on a loopback address, so that a web page cannot reach the server by DNS rebinding."""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tfjax.addresses import is_loopback
from tfjax.server.errors import ApiError, response_of


class HostAllowList:
    """Lets through loopback names, the address listened on, and `allowed`."""

    def __init__(self, app: ASGIApp, allowed: Collection[str]) -> None:
        self._app = app
        self._allowed = {name.lower().rstrip(".") for name in allowed}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            values = Headers(scope=scope).getlist("host")
            if len(values) != 1 or not self._is_allowed(host_name(values[0])):
                text = (
                    "This Host header is not allowed. If the name is yours, start the server with --allowed-host NAME."
                )
                await response_of(ApiError(403, text, code="host_not_allowed"))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_allowed(self, name: str) -> bool:
        return is_loopback(name) or name.endswith(".localhost") or name in self._allowed


def host_name(header: str) -> str:
    """The name in a Host header, without port, brackets and final dot."""
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].rstrip(".")
