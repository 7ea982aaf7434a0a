"""Starts replies beside those that are wanted, and cancels them."""

from __future__ import annotations

from dataclasses import replace

from tfjax.engine.api import Finished, Generation, Sampling, Ticket, Tokens
from tfjax.engine.engine import Engine

CANCEL_AFTER = 9
"""Tokens of a neighbour before it is cancelled."""


class Neighbours:
    """Replies that nobody wants: one is cancelled after its first tokens, one in its prompt or soon after."""

    def __init__(self, engine: Engine, model: Generation, *, every: int = 3):
        self._engine = engine
        self._every = every
        self._soon: list[Ticket] = []
        sampling = Sampling(temperature=1.0, seed=7)
        self._after_tokens = replace(model, id="neighbour", prompt=model.prompt[::-1], sampling=sampling)
        self._in_prompt = replace(self._after_tokens, id="neighbour in its prompt", prompt=model.prompt * 2)
        self.cancelled = 0

    def __call__(self, number: int) -> None:
        """Cancel what was started before, and at each `every`-th reply start two more."""
        self.end()
        if number % self._every:
            return
        self._cancel_after_tokens()
        self._soon.append(self._engine.submit(self._in_prompt, lambda event: None))

    def end(self) -> None:
        for ticket in self._soon:
            ticket.cancel()
        self.cancelled += len(self._soon)
        self._soon = []

    def _cancel_after_tokens(self) -> None:
        seen = 0
        ticket: Ticket | None = None

        def sink(event: Tokens | Finished) -> None:
            nonlocal seen
            if isinstance(event, Tokens):
                seen += len(event.tokens)
                if seen >= CANCEL_AFTER and ticket is not None:
                    ticket.cancel()

        ticket = self._engine.submit(self._after_tokens, sink)
        self._soon.append(ticket)
