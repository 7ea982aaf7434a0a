from __future__ import annotations

import threading

import pytest

from benchmarks import replies
from benchmarks.replies import make
from tests.benchmarks.scripted_exact import ScriptedEngine, reply, stats
from tfjax.engine.api import Finished, Generation, Sink, Ticket, Tokens


def generations(count: int) -> list[Generation]:
    return [Generation(f"{i}", (i, 7), 6) for i in range(count)]


@pytest.mark.parametrize("streams", [3, None])
def test_replies_come_in_order_whatever_the_streams(streams: int | None) -> None:
    asked = generations(7)
    found = make(ScriptedEngine(), asked, streams)  # type: ignore[arg-type]
    assert [one.tokens for one in found] == [reply(one) for one in asked]


class SlowEngine:
    """Ends replies on other threads, none before `wanted` are under way or all were asked for; counts them."""

    def __init__(self, wanted: int, total: int) -> None:
        self.wanted, self.total = wanted, total
        self.asked = self.open = self.most_open = 0
        self.changed = threading.Condition()

    def submit(self, generation: Generation, sink: Sink) -> Ticket:
        with self.changed:
            self.asked, self.open = self.asked + 1, self.open + 1
            self.most_open = max(self.most_open, self.open)
            self.changed.notify_all()
        # Late enough for one too many to be asked for.
        threading.Timer(0.01, self.end, (sink,)).start()
        return Ticket(lambda: None, lambda: False)

    def end(self, sink: Sink) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.open >= self.wanted or self.asked == self.total, timeout=60)
            self.open -= 1
        sink(Tokens((1,), ""))
        sink(Finished("length", stats((1,), drafted=False)))


@pytest.mark.parametrize(("streams", "most"), [(1, 1), (4, 4), (None, 9)])
def test_so_many_are_under_way_at_once(streams: int | None, most: int) -> None:
    engine = SlowEngine(most, 9)
    make(engine, generations(9), streams)  # type: ignore[arg-type]
    assert engine.most_open == most


def test_each_is_announced_before_it_begins() -> None:
    seen: list[int] = []
    make(ScriptedEngine(), generations(3), 1, seen.append)  # type: ignore[arg-type]
    assert seen == [0, 1, 2]


def test_an_error_is_no_reply() -> None:
    with pytest.raises(RuntimeError, match="0: out of luck"):
        make(ScriptedEngine(error="out of luck"), generations(2), 1)  # type: ignore[arg-type]


def test_silence_is_no_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def submit(self, generation: Generation, sink: Sink) -> None:
            pass

    monkeypatch.setattr(replies, "SILENCE_S", 0.01)
    with pytest.raises(TimeoutError, match="with 2 replies open"):
        make(Silent(), generations(2))  # type: ignore[arg-type]
