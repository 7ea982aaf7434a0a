"""uvicorn's h11 protocol with time limits on headers and on unread replies, and with refusals in OpenAI's shape."""

from __future__ import annotations

import asyncio
import contextlib
import http
import socket
from typing import Any, cast

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tfjax.config import ServeConfig
from tfjax.server.errors import ApiError, body_of, headers_of, unavailable

HEADER_TIMEOUT_S = 10.0
MAX_HEADER_BYTES = 64 * 1024
MAX_CONNECTIONS = 1024
STALLED_S = 30.0
# What a client must take of a reply in that time, so that reading a byte now and then holds nothing open.
STALLED_BYTES = 64 * 1024
# The kernel takes more only when a good part of its buffer is free; megabytes of it would hide that a client reads.
SEND_BUFFER_BYTES = 256 * 1024
_ABORT = "tfjax.abort"


def uvicorn_config(app: ASGIApp, config: ServeConfig) -> uvicorn.Config:
    """How uvicorn runs the application: h11 alone, for the limit on headers is h11's."""
    return uvicorn.Config(
        _ending_quietly(app),
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


def _ending_quietly(app: ASGIApp) -> ASGIApp:
    """The application, whose requests may be cancelled: uvicorn would log each as a failure with its stack."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        # Only a server that stops cancels requests, and their clients have been cut off then.
        with contextlib.suppress(asyncio.CancelledError):
            await app(scope, receive, send)

    return run


def abort_connection(scope: Scope) -> None:
    """Closes a request's connection without waiting for what its client does not read."""
    abort = scope.get(_ABORT)
    if abort is not None:
        abort()


class ServerProtocol(H11Protocol):
    """One connection.

    A client that does not finish its headers in time is answered 408 and closed. One that does not take what was
    written for it is cut off, whatever wrote it: a reply of any route, a refusal, or a connection being closed.
    """

    header_timeout_s = HEADER_TIMEOUT_S
    max_connections = MAX_CONNECTIONS
    stalled_s = STALLED_S
    stalled_bytes = STALLED_BYTES
    send_buffer_bytes = SEND_BUFFER_BYTES

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # So that the transport says pause_writing whenever bytes are unsent, and resume_writing when none are.
        transport.set_write_buffer_limits(high=0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
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
        self._unwatch()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unwatch()

    def send_400_response(self, msg: str) -> None:
        self._refuse(ApiError(400, "This is not a valid HTTP request.", code="invalid_http"))

    def _watch(self) -> None:
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(self.stalled_s, self._still_unsent)

    def _unwatch(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _still_unsent(self) -> None:
        if self._unsent_bytes - self.transport.get_write_buffer_size() < self.stalled_bytes:
            self.transport.abort()
        else:
            self._watch()

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
