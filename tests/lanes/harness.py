"""Runs requests through the loop and compares them with the serial oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.stubs import VOCAB, FakeClock, Recorder, ScriptedBackend, ScriptedProposer, serial
from tfjax.lanes.loop import Lanes
from tfjax.lanes.proposer import Proposer
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request, Stream

PAGES = 400
PAGE_ROWS = 4


def settings(**changes: Any) -> Settings:
    return Settings(
        **{"lanes": 8, "context": 256, "pages": PAGES, "page_rows": PAGE_ROWS, "vocab_size": VOCAB, **changes}
    )


def drafter(mode: str, **options: Any) -> Callable[[Request], Proposer]:
    return lambda request: ScriptedProposer(request, mode, **options)


class Run:
    """A loop on a scripted backend, and what came of it."""

    def __init__(
        self,
        settings: Settings,
        proposer: Callable[[Request], Proposer] | None = None,
        backend: ScriptedBackend | None = None,
        clock: FakeClock | None = None,
    ) -> None:
        self.clock = clock or FakeClock()
        self.backend = backend or ScriptedBackend(pages=settings.pages, page_rows=settings.page_rows)
        self.recorder = Recorder()
        self.settings = settings
        self.lanes = Lanes(self.backend, self.clock, settings, self.recorder, proposer)
        self.streams: dict[str, Stream] = {}

    def admit(self, *requests: Request) -> None:
        for request in requests:
            self.streams[request.id] = self.lanes.admit(request)

    def finish(self, most_rounds: int = 10_000) -> None:
        for _ in range(most_rounds):
            if not self.lanes.round():
                break
        assert self.lanes.idle, "the loop does not come to an end"
        self.check_no_leak()

    def check_no_leak(self) -> None:
        assert self.lanes.pages_held == 0
        assert not self.backend.lanes

    def check_serial(self, *requests: Request) -> int:
        """Every reply equals the serial oracle's. Returns the number of tokens compared."""
        compared = 0
        for request in requests:
            expected = serial(request, self.settings.context)
            assert self.recorder.reply(request.id) == expected, request.id
            stream = self.streams[request.id]
            assert stream.emitted == len(expected[0])
            assert stream.cache_length == len(stream.context) - 1
            compared += len(expected[0])
        return compared

    def check_tokens(self, *requests: Request) -> None:
        """As `check_serial`, for a backend that gives no logprobs."""
        for request in requests:
            assert self.recorder.reply(request.id)[:2] == serial(request, self.settings.context)[:2], request.id


def complete(
    requests: Sequence[Request],
    settings: Settings,
    proposer: Callable[[Request], Proposer] | None = None,
    **backend: Any,
) -> Run:
    """Run requests to their end, all admitted at once, and compare each with the oracle."""
    stub = ScriptedBackend(pages=settings.pages, page_rows=settings.page_rows, **backend) if backend else None
    run = Run(settings, proposer, stub)
    run.admit(*requests)
    run.finish()
    run.check_serial(*requests)
    return run
