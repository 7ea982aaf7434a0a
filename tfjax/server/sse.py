"""Server-sent events: framing, pings in silence, errors after the stream has opened."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from tfjax.server.errors import ApiError, body_of
from tfjax.server.formats import Format
from tfjax.server.reply import Reply

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}


def frame(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def error_frames(error: ApiError) -> bytes:
    return frame(body_of(error)) + DONE


async def frames(reply: Reply, form: Format) -> AsyncIterator[bytes]:
    """The bytes of a stream, one item a chunk; a ping for each silent tick."""
    opened: set[int] = set()
    async for piece in reply.pieces():
        if piece is None:
            yield PING
            continue
        out = b""
        if piece.choice not in opened:
            opened.add(piece.choice)
            opening = form.opening(piece.choice)
            out = frame(msgspec.json.encode(opening)) if opening is not None else b""
        yield out + frame(msgspec.json.encode(form.chunk(piece)))
    if reply.plan.include_usage:
        yield frame(msgspec.json.encode(form.usage(reply.finished)))
    yield DONE
