"""The server's state: loading, ready, draining or failed; and the replies in flight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tfjax.config import ServeConfig
from tfjax.server import schemas
from tfjax.server.errors import unavailable
from tfjax.server.fields import RULES
from tfjax.server.jsonbody import MAX_DEPTH
from tfjax.server.metrics import ServerMetrics
from tfjax.server.model import Model, model_of
from tfjax.server.port import EnginePort
from tfjax.server.protocol import STALLED_S
from tfjax.server.replies import Health
from tfjax.server.reply import Reply
from tfjax.server.workers import Workers

PING_S = 15.0


def drafter_of(engine: EnginePort) -> Mapping[str, Any]:
    """What the engine says about the small model that drafts, or why there is none."""
    drafter = engine.capabilities().get("drafter")
    return drafter if isinstance(drafter, dict) else {}


class Service:
    """What all routes share. It belongs to the event loop's thread; the loading thread calls `progress` alone."""

    def __init__(self, config: ServeConfig, engine: EnginePort | None = None, *, ping_s: float = PING_S) -> None:
        self.config = config
        self._model = None if engine is None else model_of(engine, config.alias)
        self.metrics = ServerMetrics(lambda: self.engine)
        self.workers = Workers()
        self.ping_s = ping_s
        self.stalled_s = STALLED_S
        self.phase = "starting"
        self.fraction = 0.0
        self.failed: str | None = None
        self.draining = False
        self.created = int(time.time())
        self._live: set[Reply] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def progress(self, phase: str, fraction: float) -> None:
        """How far loading is; any thread. What follows a colon is for the terminal: /health is open to everybody."""
        self.phase, self.fraction = phase.partition(":")[0], fraction

    def ready_model(self) -> Model:
        """The model, or 503 with the reason why there is none."""
        model = self._model
        if self.draining:
            raise unavailable("The server is stopping and takes no new requests.", "stopping")
        if model is None:
            text = f"The model is loading ({self.phase}, {self.fraction:.0%}); try again."
            raise unavailable(text, "loading", retry_after_s=2)
        if self.failed is not None or model.engine.status().failed is not None:
            raise unavailable("The engine has failed; the server's log says why.", "engine_failed", retry_after_s=30)
        return model

    @property
    def engine(self) -> EnginePort | None:
        return None if self._model is None else self._model.engine

    def loaded(self, model: Model) -> None:
        """From now on requests are served."""
        self._model = model

    def described(self) -> dict[str, object]:
        """The server's own part of /capabilities."""
        return {
            "in_flight": self.in_flight,
            "ping_s": self.ping_s,
            "limits": {
                "n": schemas.MAX_CHOICES,
                "stop": schemas.MAX_STOPS,
                "stop_chars": schemas.MAX_STOP_CHARS,
                "top_logprobs": schemas.MAX_TOP_LOGPROBS,
                "logit_bias": schemas.MAX_BIAS,
                "messages": schemas.MAX_MESSAGES,
                "json_depth": MAX_DEPTH,
            },
            "refused_fields": sorted(RULES),
        }

    def health(self) -> tuple[int, Health]:
        """HTTP status and body of /health."""
        if self.engine is None:
            return 503, Health("loading", self.phase, self.fraction)
        engine, drafter = self.engine.status(), drafter_of(self.engine)
        health = Health("ok", engine.phase, engine.fraction, engine.running, engine.waiting)
        health.drafter, health.drafter_reason = drafter.get("name"), drafter.get("reason")
        if self.failed is not None or engine.failed is not None:
            health.status, health.reason = "failed", self.failed or "The engine has failed; the log says why."
        elif self.draining:
            health.status = "draining"
        elif not engine.ready:
            health.status = "loading"
        return (200 if health.status == "ok" else 503), health

    @contextmanager
    def serving(self, reply: Reply) -> Iterator[None]:
        """Counts `reply` as in flight, so that a drain waits for it and a stop can end it."""
        self._live.add(reply)
        self._idle.clear()
        try:
            yield
        finally:
            self._live.discard(reply)
            if not self._live:
                self._idle.set()

    @property
    def in_flight(self) -> int:
        return len(self._live)

    async def idle(self, timeout_s: float) -> bool:
        """Waits until nothing is in flight; False when `timeout_s` ran out first."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def cut(self) -> None:
        """Ends all replies in flight with an error."""
        for reply in list(self._live):
            reply.fail(unavailable("The server stopped before the reply was complete.", "stopped"))
