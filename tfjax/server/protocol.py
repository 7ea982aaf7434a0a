"""uvicorn's h11 protocol with a time limit on headers, and with its own refusals in OpenAI's shape."""

from __future__ import annotations

import asyncio
import http
from typing import Any, cast

import h11
import uvicorn
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from tfjax.config import ServeConfig
from tfjax.server.errors import ApiError, body_of, headers_of, unavailable

HEADER_TIMEOUT_S = 10.0
MAX_HEADER_BYTES = 64 * 1024
MAX_CONNECTIONS = 1024
_ABORT = "tfjax.abort"


def uvicorn_config(app: ASGIApp, config: ServeConfig) -> uvicorn.Config:
    """How uvicorn runs the application: h11 alone, for the limit on headers is h11's."""
    return uvicorn.Config(
        app,
        http=ServerProtocol,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=max(1, round(config.keep_alive_s)),
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )


def abort_connection(scope: Scope) -> None:
    """Closes a request's connection without waiting for what its client does not read."""
    abort = scope.get(_ABORT)
    if abort is not None:
        abort()


class ServerProtocol(H11Protocol):
    """One connection. A client that does not finish its headers in time is answered 408 and closed."""

    header_timeout_s = HEADER_TIMEOUT_S
    max_connections = MAX_CONNECTIONS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arm()
        if len(self.connections) > self.max_connections:
            self._refuse(unavailable("Too many connections are open; try again.", "overloaded"))

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._arm()
        else:
            self._disarm()

    def handle_events(self) -> None:
        super().handle_events()
        if self.scope is not None:
            # The application's task has not begun yet, and it is given this very object.
            cast("dict[str, object]", self.scope)[_ABORT] = self.transport.abort

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._refuse(ApiError(400, "This is not a valid HTTP request.", code="invalid_http"))

    def _arm(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(self.header_timeout_s, self._too_slow)

    def _disarm(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _too_slow(self) -> None:
        self._header_timer = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._refuse(
                ApiError(408, f"The headers did not arrive within {self.header_timeout_s:g} s.", code="timeout")
            )

    def _refuse(self, error: ApiError) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = body_of(error)
            extra = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
            headers = [(name.encode(), value.encode()) for name, value in (headers_of(error) | extra).items()]
            reason = http.HTTPStatus(error.status).phrase.encode()
            for event in (
                h11.Response(status_code=error.status, headers=headers, reason=reason),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
