from __future__ import annotations

from benchmarks.exact_neighbours import CANCEL_AFTER, Neighbours
from tfjax.engine.api import Generation, Sink, Ticket, Tokens


def generations(count: int) -> list[Generation]:
    return [Generation(f"{i}", (i, 7), 6) for i in range(count)]


class HoldingEngine:
    """Keeps sinks and counts cancellations."""

    def __init__(self) -> None:
        self.sinks: list[Sink] = []
        self.cancelled: list[int] = []

    def submit(self, generation: Generation, sink: Sink) -> Ticket:
        number = len(self.sinks)
        self.sinks.append(sink)
        return Ticket(lambda: self.cancelled.append(number), lambda: False)


def test_neighbours_are_cancelled_after_tokens_and_in_their_prompt() -> None:
    engine = HoldingEngine()
    neighbours = Neighbours(engine, generations(1)[0], every=2)  # type: ignore[arg-type]
    neighbours(0)
    assert (len(engine.sinks), engine.cancelled) == (2, [])
    engine.sinks[0](Tokens((1,) * CANCEL_AFTER, ""))
    assert engine.cancelled == [0]
    neighbours(1)
    assert (len(engine.sinks), engine.cancelled) == (2, [0, 0, 1])
    neighbours(2)
    neighbours.end()
    assert (len(engine.sinks), neighbours.cancelled) == (4, 4)
