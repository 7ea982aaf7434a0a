from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.scripted_engine import WAIT_S, Gate, Receiver, expected, generation, opened
from tests.stubs import VOCAB, ScriptedBackend, hashed
from tfjax.engine.api import EngineStopped, Event, QueueFull
from tfjax.server.metrics import ENGINE_HELP


def ended(receiver: Receiver) -> tuple[str, str | None]:
    finished = receiver.wait()
    return finished.reason, finished.error


# Serving.


@pytest.mark.parametrize("mode", ["perfect", "wrong", "mixed", "short", "empty", "hostile", "garbage"])
def test_every_reply_is_the_serial_one(mode: str) -> None:
    asked = [generation(hashed(i), id=f"r{i}", prompt=tuple(range(i, i + 5)), max_tokens=9 + 4 * i) for i in range(9)]
    with opened(mode) as door:
        receivers = [door.ask(one)[0] for one in asked]
        for one, receiver in zip(asked, receivers, strict=True):
            assert ended(receiver)[0] in ("length", "stop")
            assert receiver.tokens == expected(one)


def test_two_requests_may_have_one_id() -> None:
    with opened() as door:
        first, second = (generation(hashed(i), id="same") for i in range(2))
        receivers = [door.ask(one)[0] for one in (first, second)]
        for receiver, asked in zip(receivers, (first, second), strict=True):
            receiver.wait()
            assert receiver.tokens == expected(asked)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt": tuple([1] * 200)}, "context of 200"),
        ({"prompt": (1, VOCAB)}, f"outside 0..{VOCAB - 1}"),
        ({"prompt": ()}, "0 prompt tokens"),
    ],
)
def test_what_can_never_be_served_ends_with_the_reason(changes: dict[str, Any], words: str) -> None:
    with opened() as door:
        reason, error = ended(door.reply(generation(hashed(), **changes)))
        assert reason == "error"
        assert words in (error or "")
        assert door.reply(generation(hashed())).tokens == expected(generation(hashed()))
        assert door.engine.status().waiting == 0


def test_reused_tokens_are_told() -> None:
    asked = generation(hashed(), prompt=tuple(range(10)), max_tokens=3, ignore_eos=True, cache_salt="a")
    with opened(prompt_pages=4) as door:
        cached = [door.reply(asked).wait().stats.cached_tokens for _ in range(2)]
        cached.append(door.reply(replace(asked, cache_salt="b")).wait().stats.cached_tokens)
        assert cached == [0, 8, 0]
        assert door.engine.metrics()["prompt_cache_usage_perc"] == 1.0
        assert door.engine.metrics()["kv_cache_usage_perc"] == 0


# The queue.


def test_a_full_queue_refuses_with_limit_and_flag() -> None:
    gate = Gate()
    with opened(lanes=1, max_queue=1) as door:
        first, _ = door.ask(generation(gate))
        gate.await_reached()
        second, _ = door.ask(generation(gate))
        with pytest.raises(QueueFull, match=r"1 requests wait already.*--max-queue 1"):
            door.ask(generation(gate))
        assert (door.engine.status().running, door.engine.status().waiting) == (1, 1)
        gate.open()
        first.wait()
        second.wait()
        assert door.reply(generation(hashed())).tokens


def test_a_ticket_waits_until_it_has_a_lane() -> None:
    gate = Gate()
    with opened(lanes=1) as door:
        first, running = door.ask(generation(gate))
        gate.await_reached()
        second, queued = door.ask(generation(hashed()))
        assert (running.waiting(), queued.waiting()) == (False, True)
        gate.open()
        first.wait()
        second.wait()
        assert not queued.waiting()


# Cancelling.


def test_cancelled_before_admission() -> None:
    gate = Gate()
    with opened() as door:
        first, _ = door.ask(generation(gate))
        gate.await_reached()
        second, ticket = door.ask(generation(hashed(1)))
        ticket.cancel()
        ticket.cancel()
        gate.open()
        assert ended(second) == ("cancelled", None)
        assert second.tokens == []
        assert ended(first)[0] == "length"


def test_cancelled_while_it_runs() -> None:
    class Cancelling(Receiver):
        def __call__(self, event: Event) -> None:
            super().__call__(event)
            if len(self.tokens) >= 3:
                self.ticket.cancel()

        ticket: Any = None

    with opened("empty") as door:
        receiver, gate = Cancelling(), Gate()
        receiver.ticket = door.engine.submit(generation(gate, max_tokens=150), receiver)
        gate.open()
        finished = receiver.wait()
        assert finished.reason == "cancelled"
        assert 3 <= finished.stats.completion_tokens < 150
        assert receiver.tokens == expected(generation(hashed(), max_tokens=150))[: len(receiver.tokens)]
        receiver.ticket.cancel()
        assert door.engine.metrics()["kv_cache_usage_perc"] == 0


def test_a_sink_that_raises_ends_its_own_request_only() -> None:
    class Broken(Receiver):
        def __call__(self, event: Event) -> None:
            super().__call__(event)
            raise OSError("the client is gone")

    with opened("mixed") as door:
        broken, gate = Broken(), Gate()
        other, _ = door.ask(generation(gate, max_tokens=40))
        gate.await_reached()
        door.engine.submit(generation(hashed(3), max_tokens=150), broken)
        gate.open()
        assert ended(broken) == ("cancelled", None)
        assert len(broken.tokens) < 150
        assert ended(other) == ("length", None)
        assert door.reply(generation(hashed())).tokens == expected(generation(hashed()))


# Ends.


def test_drain_waits_for_what_is_open_and_takes_nothing_new() -> None:
    gate = Gate()
    with opened() as door:
        receiver, _ = door.ask(generation(gate))
        gate.await_reached()
        drain = threading.Thread(target=door.engine.drain, args=(WAIT_S,))
        drain.start()
        while door.engine.status().phase != "draining":
            time.sleep(0.01)
        with pytest.raises(EngineStopped, match="shutting down"):
            door.ask(generation(hashed()))
        assert not door.engine.status().ready
        gate.open()
        drain.join(WAIT_S)
        assert ended(receiver) == ("length", None)
        assert receiver.tokens == expected(generation(hashed()))


def test_drain_cancels_what_takes_too_long() -> None:
    gate = Gate()
    with opened() as door:
        receiver, _ = door.ask(generation(gate, max_tokens=150))
        gate.await_reached()
        door.engine.drain(0.05)
        gate.open()
        assert ended(receiver) == ("cancelled", None)


def test_close_ends_everything() -> None:
    gate = Gate()
    with opened(lanes=1) as door:
        running, _ = door.ask(generation(gate, max_tokens=150))
        gate.await_reached()
        waiting, _ = door.ask(generation(hashed()))
        threading.Timer(0.1, gate.open).start()
        door.engine.close()
        for receiver in (running, waiting):
            assert ended(receiver)[0] in ("cancelled", "error")
        with pytest.raises(EngineStopped):
            door.ask(generation(hashed()))
    assert not door.engine._thread.is_alive()


def test_tokens_told_before_the_end_are_counted() -> None:
    """Also where the end is the engine's own."""
    backend = Breaking(at=4)
    with opened("empty", backend=backend) as door:
        receiver, _ = door.ask(generation(hashed()))
        finished = receiver.wait()
    assert finished.stats.completion_tokens == len(receiver.tokens) > 0


# Failures.


class Breaking(ScriptedBackend):
    """A device that is lost at the given verify call."""

    def __init__(self, at: int) -> None:
        super().__init__(fail_at={"verify": {at}})
        self.at = at
        self.broken: Exception | None = None

    def verify(self, windows: Any) -> int:
        try:
            return super().verify(windows)
        except Exception as error:
            self.broken = error
            raise


def test_a_lost_device_ends_every_request_and_the_engine() -> None:
    with opened("empty", backend=Breaking(at=3), lanes=2) as door:
        gate = Gate()
        receivers = [door.ask(generation(gate, id=f"r{i}", max_tokens=100))[0] for i in range(5)]
        gate.open()
        for receiver in receivers:
            reason, error = ended(receiver)
            assert reason == "error"
            assert "verify call 3" in (error or "")
        status = door.engine.status()
        while status.phase != "failed":
            status = door.engine.status()
        assert (status.ready, status.running + status.waiting) == (False, 0)
        assert "verify call 3" in (status.failed or "")
        with pytest.raises(EngineStopped, match="verify call 3"):
            door.ask(generation(hashed()))


def test_a_call_that_fails_ends_its_streams_and_no_others() -> None:
    backend = ScriptedBackend(fail_at={"verify": {3}})
    with opened("empty", backend=backend) as door:
        assert ended(door.ask(generation(hashed()))[0])[0] == "error"
        assert door.engine.status().ready
        assert door.reply(generation(hashed(1))).tokens == expected(generation(hashed(1)))


# What is told.


def test_status_and_metrics_of_an_idle_engine() -> None:
    with opened() as door:
        before = door.engine.metrics()["rounds_total"]
        door.reply(generation(hashed()))
        time.sleep(0.05)
        status, metrics = door.engine.status(), door.engine.metrics()
    assert (status.phase, status.ready, status.failed, status.fraction) == ("ready", True, None, 1.0)
    assert (status.running, status.waiting, status.stalled_s) == (0, 0, 0.0)
    assert metrics["rounds_total"] > before
    assert (metrics["lanes_active"], metrics["kv_cache_usage_perc"]) == (0, 0)
    assert set(metrics) <= set(ENGINE_HELP), "/metrics has no words for it"


def test_a_stall_shows() -> None:
    gate = Gate()
    with opened() as door:
        receiver, _ = door.ask(generation(gate))
        gate.await_reached()
        time.sleep(0.2)
        assert door.engine.status().stalled_s >= 0.1
        gate.open()
        receiver.wait()


def test_capabilities_name_model_and_context() -> None:
    with opened() as door:
        assert door.engine.capabilities() == {"device": "none", "model": "tiny", "context": 200}
