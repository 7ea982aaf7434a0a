"""Watches the engine while it serves: failure, standstill, and a status line when it is busy."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import sys
import time

from tfjax.server.service import Service

log = logging.getLogger("tfjax.server")

TICK_S = 1.0
STATUS_EVERY_S = 10.0
NO_PROGRESS_S = 120.0


class Monitor:
    """Runs beside the server; `failure` is set when the engine has failed for good."""

    def __init__(self, service: Service, *, tick_s: float = TICK_S, no_progress_s: float = NO_PROGRESS_S) -> None:
        self.failure = asyncio.Event()
        self._service = service
        self._tick_s = tick_s
        self._no_progress_s = no_progress_s
        self._status_s = time.monotonic()
        self._totals = service.metrics.totals

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            try:
                self._tick()
            except Exception:
                log.exception("the monitor failed on one tick")

    def _tick(self) -> None:
        engine = self._service.engine
        if engine is None:
            return
        status = engine.status()
        if status.failed is not None and not self.failure.is_set():
            log.error("the engine has failed: %s", status.failed)
            self.failure.set()
        self._check_progress(status.stalled_s >= self._no_progress_s)
        if time.monotonic() - self._status_s >= STATUS_EVERY_S:
            self._say_status(status.running, status.waiting)

    def _check_progress(self, stuck: bool) -> None:
        if stuck and self._service.failed is None:
            self._service.failed = "The engine makes no progress."
            log.error("the engine makes no progress; /health says so from now on. Threads stand here:")
            faulthandler.dump_traceback(sys.stderr)
        elif not stuck and self._service.failed is not None:
            self._service.failed = None
            log.warning("the engine makes progress again")

    def _say_status(self, running: int, waiting: int) -> None:
        now, totals = time.monotonic(), self._service.metrics.totals
        seconds, self._status_s = now - self._status_s, now
        before, self._totals = self._totals, totals
        generated = totals.generated - before.generated
        if not (running or waiting or generated):
            return
        fields: dict[str, object] = {"running": running, "waiting": waiting, "tok_s": round(generated / seconds, 1)}
        drafts = totals.drafts - before.drafts
        if drafts:
            accepted = totals.accepted - before.accepted
            fields["acceptance_length"] = round(1 + accepted / drafts, 2)
            fields["accepted"] = f"{accepted}/{totals.drafted - before.drafted}"
        log.info("status", extra={"fields": fields})
