"""Makes replies on an engine, a given number at once."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfjax.engine.api import Finished, Generation, Tokens
from tfjax.engine.engine import Engine

SILENCE_S = 120.0
"""An engine that says nothing for so long is taken to hang."""


@dataclass(frozen=True, slots=True)
class Made:
    """One reply that was made. `counting`: its tokens from rounds with drafts."""

    tokens: tuple[int, ...]
    finished: Finished

    @property
    def counting(self) -> int:
        stats = self.finished.stats
        return min(stats.completion_tokens, stats.drafted_rounds + stats.accepted)


def make(
    engine: Engine,
    generations: Sequence[Generation],
    streams: int | None = None,
    between: Callable[[int], None] | None = None,
) -> list[Made]:
    """Replies in the order of `generations`.

    Args:
        streams: how many are under way at once; None is all.
        between: called with a reply's number before it is begun.

    Raises:
        RuntimeError: one that ended with an error.
        TimeoutError: the engine fell silent.
    """
    events: queue.SimpleQueue[tuple[int, Tokens | Finished]] = queue.SimpleQueue()
    tokens: list[list[int]] = [[] for _ in generations]
    made: dict[int, Made] = {}
    begun = 0

    def begin() -> None:
        nonlocal begun
        number, begun = begun, begun + 1
        if between is not None:
            between(number)
        engine.submit(generations[number], lambda event: events.put((number, event)))

    for _ in range(min(streams or len(generations), len(generations))):
        begin()
    while len(made) < len(generations):
        try:
            number, event = events.get(timeout=SILENCE_S)
        except queue.Empty:
            raise TimeoutError(
                f"no token for {SILENCE_S:g} s, with {len(generations) - len(made)} replies open"
            ) from None
        if isinstance(event, Tokens):
            tokens[number] += event.tokens
            continue
        if event.error is not None:
            raise RuntimeError(f"{generations[number].id}: {event.error}")
        made[number] = Made(tuple(tokens[number]), event)
        if begun < len(generations):
            begin()
    return [made[number] for number in range(len(generations))]
