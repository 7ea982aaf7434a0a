"""A scripted model whose device works only as far as the test allows."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tests.reports.stage import ScriptedModel
from tests.stubs import BackendFailureError
from tfjax.lanes.stream import Stream
from tfjax.lanes.window import Result

WAIT_S = 10


class SteppedModel(ScriptedModel):
    """Reading a round and queueing a prompt's chunk each take one permit.

    Attributes:
        taken: permits taken so far.
        begun: prompts that got a lane.
    """

    def __init__(self, pages: int = 600) -> None:
        super().__init__(pages=pages)
        self.taken = 0
        self.begun: list[str] = []
        self._permits = threading.Semaphore(0)

    def allow(self, count: int = 1) -> None:
        self._permits.release(count)

    def prefill_begin(self, stream: Stream) -> None:
        super().prefill_begin(stream)
        self.begun.append(stream.request.id)

    def prefill_step(self, stream: Stream, start: int, stop: int) -> None:
        self._take()
        super().prefill_step(stream, start, stop)

    def read(self, ticket: int) -> Sequence[Result]:
        self._take()
        return super().read(ticket)

    def _take(self) -> None:
        if not self._permits.acquire(timeout=WAIT_S):
            raise BackendFailureError("the test gave no permit")
        self.taken += 1
