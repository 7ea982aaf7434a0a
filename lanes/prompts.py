"""Fills prompts, a chunk of one of them at a time."""

from __future__ import annotations

from collections.abc import Callable

from tfjax.lanes.backend import Backend
from tfjax.lanes.outcome import Outcome, judge
from tfjax.lanes.roster import Roster
from tfjax.lanes.stream import Stream
from tfjax.lanes.window import Window


class Prompts:
    """Brings prompts into the cache and draws what comes after them."""

    def __init__(self, backend: Backend, roster: Roster, clock: Callable[[], float]) -> None:
        """`clock` returns seconds."""
        self._backend = backend
        self._roster = roster
        self._clock = clock

    def fill(self, stream: Stream) -> None:
        """Queue the next chunk of a stream's prompt: a short one where others would have to wait for it."""
        prompt, start = stream.request.prompt, stream.cache_length
        stop = min(len(prompt), start + self._backend.chunk_rows[0 if self._roster.decoding else -1])
        self._backend.prefill_step(stream, start, stop)
        stream.cache_length = stop
        if stream.proposer is not None:
            stream.proposer.extend(prompt[start:stop])

    def draw_first(self, stream: Stream) -> Outcome:
        """Wait for the first token of a reply whose prompt is whole in the cache."""
        prompt = stream.request.prompt
        result = self._backend.first(stream)
        stream.times.first_token_s = self._clock()
        outcome = judge(Window(stream, len(prompt) - 1, prompt[-1]), result)
        if stream.proposer is not None:
            stream.proposer.extend(outcome.tokens)
        outcome.advance()
        if outcome.reason != "error":
            self._roster.prompt_filled(stream)
        return outcome
