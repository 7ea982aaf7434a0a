"""An engine whose drafts are right with a given probability, since it has made each reply before without drafts."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.drafters import KnowingProposer
from tfjax.engine.api import Event, Finished, Generation, Sampling, Sink, Ticket
from tfjax.engine.engine import Engine, Served
from tfjax.lanes.backend import Backend
from tfjax.lanes.proposer import Proposer, Silent
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request


class RememberingEngine(Engine):
    """Remembers plain replies by prompt and sampling; requests that it does not know get no drafts."""

    def __init__(self, backend: Backend, settings: Settings, served: Served, *, right: float) -> None:
        self.known: dict[tuple[tuple[int, ...], Sampling], Sequence[int]] = {}
        self._right = right
        super().__init__(backend, settings, served, proposer=self._drafter)

    def submit(self, generation: Generation, sink: Sink) -> Ticket:
        if generation.draft:
            return super().submit(generation, sink)
        tokens: list[int] = []

        def remember(event: Event) -> None:
            if isinstance(event, Finished):
                self.known[generation.prompt, generation.sampling] = tokens
            else:
                tokens.extend(event.tokens)
            sink(event)

        return super().submit(generation, remember)

    def _drafter(self, request: Request) -> Proposer:
        reply = self.known.get((request.prompt, request.sampling))
        if reply is None:
            return Silent()
        numbers = self._settings
        prompt = len(request.prompt)
        return KnowingProposer(reply, prompt, numbers.vocab_size, right=self._right, deepest=numbers.draft_tokens)
