"""Gives each request an id and writes one line when it ends. It lets nothing through and stops nothing."""

from __future__ import annotations

import logging
import time
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tfjax.server.record import Record, start_record
from tfjax.server.tally import decode_tps

log = logging.getLogger("tfjax.request")

QUIET_PATHS = ("/health", "/health/ready", "/metrics")
CLIENT_CLOSED = 499


class Observe:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, *, log_prompts: bool) -> None:
        self._app = app
        self._log_prompts = log_prompts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = start_record(scope, "req-" + uuid.uuid4().hex)

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message = {**message, "headers": [*message.get("headers", []), (b"x-request-id", record.id.encode())]}
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            level = logging.DEBUG if scope["path"] in QUIET_PATHS else logging.INFO
            if log.isEnabledFor(level):
                log.log(level, "request", extra={"fields": fields_of(record, scope, self._log_prompts)})


def fields_of(record: Record, scope: Scope, log_prompts: bool) -> dict[str, object]:
    """What the line says. Text of the request stays out unless the operator asked for it."""
    status = CLIENT_CLOSED if record.gone else record.status
    fields: dict[str, object] = {
        "id": record.id,
        "key": record.key,
        "route": f"{scope['method']} {scope['path'][:128]}",
        "status": status,
        "ms": round((time.monotonic() - record.started_s) * 1000, 1),
    }
    if record.error is not None:
        fields["error"] = record.error
    if record.plan is not None:
        fields["prompt"] = record.plan.prompt_tokens
    if record.finished:
        stats = [event.stats for event in record.finished]
        fields["cached"] = sum(s.cached_tokens for s in stats)
        fields["out"] = sum(s.completion_tokens for s in stats)
        fields["ttft_ms"] = round(min(s.ttft_ms for s in stats), 1)
        fields["tok_s"] = max(decode_tps(s.completion_tokens, s.decode_ms) for s in stats)
        fields["accepted"] = f"{sum(s.accepted for s in stats)}/{sum(s.drafted for s in stats)}"
    if log_prompts:
        fields |= {"prompt_text": record.prompt, "reply_text": record.text}
    return fields
