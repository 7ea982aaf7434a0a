from __future__ import annotations

import threading

import pytest

from benchmarks.exact_making import CANCEL_AFTER, Neighbours, make
from tests.benchmarks.scripted_exact import ScriptedEngine, reply, stats
from tfjax.engine.api import Finished, Generation, Sink, Ticket, Tokens


def generations(count: int) -> list[Generation]:
    return [Generation(f"{i}", (i, 7), 6) for i in range(count)]


def test_replies_come_in_order_whatever_the_streams() -> None:
    asked = generations(7)
    found = make(ScriptedEngine(), asked, 3)  # type: ignore[arg-type]
    assert [one.tokens for one in found] == [reply(one) for one in asked]


class SlowEngine:
    """Ends a reply on another thread a little later, and sees how many are under way."""

    def __init__(self) -> None:
        self.open = self.most_open = 0

    def submit(self, generation: Generation, sink: Sink) -> Ticket:
        self.open += 1
        self.most_open = max(self.most_open, self.open)

        def end() -> None:
            self.open -= 1
            sink(Tokens((1,), ""))
            sink(Finished("length", stats((1,), drafted=False)))

        threading.Timer(0.01, end).start()
        return Ticket(lambda: None, lambda: False)


@pytest.mark.parametrize("streams", [1, 4])
def test_so_many_are_under_way_at_once(streams: int) -> None:
    engine = SlowEngine()
    make(engine, generations(9), streams)  # type: ignore[arg-type]
    assert engine.most_open == streams


def test_an_error_is_no_reply() -> None:
    with pytest.raises(RuntimeError, match="0: out of luck"):
        make(ScriptedEngine(error="out of luck"), generations(2), 1)  # type: ignore[arg-type]


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
