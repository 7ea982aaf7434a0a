"""Answers one generation request: whole or as a stream, watched for a client that leaves or does not read."""

from __future__ import annotations

import asyncio
import logging

import msgspec
from starlette.types import Message, Receive, Scope, Send

from tfjax.server import sse
from tfjax.server.disconnect import ClientGone, ClientStalled, while_connected
from tfjax.server.errors import SECURITY_HEADERS, ApiError, internal, response_of
from tfjax.server.fields import ignored_header
from tfjax.server.formats import Choice, Format
from tfjax.server.protocol import abort_connection
from tfjax.server.record import record_of
from tfjax.server.reply import Reply
from tfjax.server.service import Service

log = logging.getLogger("tfjax.server")


class Exchange:
    """An ASGI response. The reply's lanes are free when it returns, however it returns."""

    def __init__(self, service: Service, reply: Reply, form: Format) -> None:
        self._service = service
        self._reply = reply
        self._form = form
        self._opened = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = record_of(scope)
        record.plan = self._reply.plan
        try:
            with self._service.serving(self._reply):
                self._reply.submit()
                await while_connected(receive, self._answer(scope, receive, send))
        except ClientGone as gone:
            record.gone = True
            self._service.metrics.disconnected()
            if isinstance(gone, ClientStalled):
                abort_connection(scope)
        except ApiError as error:
            await self._refuse(error, scope, receive, send)
        except Exception:
            log.exception("request %s failed", self._reply.plan.id)
            await self._refuse(internal(), scope, receive, send)
        finally:
            record.finished = list(self._reply.finished)
            if self._service.config.log_prompts:
                record.prompt, record.text = self._reply.prompt_text(), self._reply.text()
            self._reply.close()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._reply.plan.stream:
            await self._stream(send)
        else:
            await self._whole(send)

    async def _whole(self, send: Send) -> None:
        choices = [Choice() for _ in self._reply.plan.generations]
        async for piece in self._reply.pieces():
            if piece is not None:
                choices[piece.choice].add(piece)
        body = msgspec.json.encode(self._form.whole([choice.as_piece(i) for i, choice in enumerate(choices)]))
        await self._open(send, {"Content-Type": "application/json", "Content-Length": str(len(body))})
        await self._send(send, body, more=False)

    async def _stream(self, send: Send) -> None:
        async for chunk in sse.frames(self._reply, self._form):
            if not self._opened:
                await self._open(send, sse.HEADERS)
            await self._send(send, chunk, more=True)
        await self._send(send, b"", more=False)

    async def _open(self, send: Send, headers: dict[str, str]) -> None:
        headers = SECURITY_HEADERS | headers | ignored_header(list(self._reply.plan.ignored))
        self._opened = True
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self._timed(send, {"type": "http.response.start", "status": 200, "headers": raw})

    async def _send(self, send: Send, body: bytes, *, more: bool) -> None:
        await self._timed(send, {"type": "http.response.body", "body": body, "more_body": more})

    async def _timed(self, send: Send, message: Message) -> None:
        """Also the head waits: replies before it on the same connection may be unread."""
        try:
            async with asyncio.timeout(self._service.stalled_s):
                await send(message)
        except TimeoutError:
            raise ClientStalled from None
        except OSError:
            raise ClientGone from None

    async def _refuse(self, error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
        record_of(scope).error = error.code or error.type
        if not self._opened:
            await response_of(error)(scope, receive, send)
        elif self._reply.plan.stream:
            try:
                await self._send(send, sse.error_frames(error), more=False)
            except ClientGone:
                self._service.metrics.disconnected()
