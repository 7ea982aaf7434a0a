"""The engine: one thread that owns the lane loop and the device, and the door to it for all others."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from tfjax.engine.api import EngineStopped, Generation, QueueFull, Sink, Ticket, TokenLogprob
from tfjax.engine.reply import Reply
from tfjax.lanes.backend import Backend
from tfjax.lanes.loop import Lanes
from tfjax.lanes.proposer import Proposer
from tfjax.lanes.roster import Refused
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request, Stream
from tfjax.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

COPY_LEAST_MATCH = 4
"""Chats quote in shorter runs than documents repeat."""


@dataclass(frozen=True, slots=True)
class Served:
    """What the engine is told about the model that it serves.

    Attributes:
        id: the name that requests use.
        eos_ids: tokens that end a reply.
        generation_config: the model's own sampling defaults.
        capabilities: json-able facts for /capabilities.
        counters: further numbers for /metrics, read when asked.
    """

    id: str
    tokenizer: Tokenizer
    eos_ids: tuple[int, ...]
    generation_config: Mapping[str, object] = field(default_factory=dict)
    capabilities: Mapping[str, object] = field(default_factory=dict)
    counters: Callable[[], Mapping[str, float]] = dict


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """A moment of the engine.

    Attributes:
        stalled_s: seconds since the last round ended while there was work, else 0.
        failed: why the engine cannot go on.
    """

    phase: str
    fraction: float
    ready: bool
    failed: str | None
    running: int
    waiting: int
    stalled_s: float


class Engine:
    """Every public method may be called from any thread."""

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        served: Served,
        *,
        max_queue: int = 64,
        clock: Callable[[], float] = time.monotonic,
        proposer: Callable[[Request], Proposer] | None = None,
    ):
        self.tokenizer = served.tokenizer
        self.context = settings.context
        self.model_id = served.id
        self.generation_config = served.generation_config
        self._served = served
        self._settings = settings
        self._max_queue = max_queue
        self._clock = clock
        self._backend = backend
        self._lanes = Lanes(backend, clock, settings, self, proposer)
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._replies: dict[str, Reply] = {}
        self._lock = threading.Lock()
        self._open = 0
        self._admitted = 0
        self._draining = False
        self._closing = False
        self._failed: str | None = None
        self._round_ended_s = clock()
        self._thread = threading.Thread(target=self._run, name="tfjax-engine", daemon=True)
        self._thread.start()

    # What others call

    def submit(self, generation: Generation, sink: Sink) -> Ticket:
        """Queue a generation. Its events reach `sink` on the engine thread, the last one being Finished.

        Raises:
            QueueFull: too many requests wait.
            EngineStopped: the engine drains or has failed.
        """
        with self._lock:
            if self._failed or self._draining or self._closing:
                raise EngineStopped(self._failed or "the server is shutting down and takes no new requests")
            if self._open >= self._settings.lanes + self._max_queue:
                waiting = self._open - self._settings.lanes
                raise QueueFull(f"{waiting} requests wait already; the limit is --max-queue {self._max_queue}")
            reply = Reply(generation, sink, self.tokenizer, self._clock())
            self._open += 1
            self._inbox.put(lambda: self._admit(reply))
        return Ticket(reply.cancel, reply.waiting)

    def capabilities(self) -> dict[str, object]:
        return {**self._served.capabilities, "model": self.model_id, "context": self.context}

    def status(self) -> EngineStatus:
        with self._lock:
            open_requests, failed = self._open, self._failed
        running = self._lanes.running
        phase = "failed" if failed else "draining" if self._draining else "ready"
        return EngineStatus(
            phase=phase,
            fraction=1.0,
            ready=phase == "ready",
            failed=failed,
            running=running,
            waiting=max(0, open_requests - running),
            stalled_s=self._clock() - self._round_ended_s if open_requests else 0.0,
        )

    def metrics(self) -> Mapping[str, float]:
        """Counters and gauges, by their names in /metrics without prefix."""
        return {
            "rounds_total": float(self._lanes.rounds),
            "lanes_active": float(self._lanes.running),
            "kv_cache_usage_perc": self._lanes.pages_held / self._settings.pages,
            "prompt_cache_usage_perc": self._lanes.pages_idle / max(1, self._settings.prompt_pages),
            **self._served.counters(),
        }

    def drain(self, timeout_s: float) -> None:
        """Take no new requests, wait for the open ones, cancel those that take longer than `timeout_s`."""
        with self._lock:
            self._draining = True
        deadline = time.monotonic() + timeout_s
        while self._open and time.monotonic() < deadline:
            time.sleep(0.02)
        self._inbox.put(self._cancel_all)

    def close(self) -> None:
        """Cancel everything and end the thread."""
        with self._lock:
            self._closing = True
        self._inbox.put(self._cancel_all)
        self._thread.join(timeout=60)

    # The lane loop's listener (engine thread)

    def on_tokens(self, stream: Stream, tokens: Sequence[int], logprobs: Sequence[TokenLogprob] | None) -> None:
        self._replies[stream.request.id].on_tokens(tokens, logprobs, stream.request.stop_ids)

    def on_finish(self, stream: Stream) -> None:
        reply = self._replies.pop(stream.request.id)
        with self._lock:
            self._open -= 1
        reply.on_finish(stream, self._clock())

    # The thread

    def _run(self) -> None:
        try:
            while not self._closing:
                self._take_in()
                if self._lanes.round():
                    self._round_ended_s = self._clock()
                broken = getattr(self._backend, "broken", None)
                if broken is not None:
                    raise RuntimeError(f"a forward failed and the device state is lost: {broken}")
        except Exception as error:
            log.exception("the engine failed")
            with self._lock:
                self._failed = f"{type(error).__name__}: {error}"
        self._end_all()

    def _take_in(self) -> None:
        """Do what others put in the inbox; sleep there while there is nothing else to do."""
        block = self._lanes.idle
        while True:
            try:
                act = self._inbox.get(block=block)
            except Empty:
                return
            if block:
                self._round_ended_s = self._clock()
            block = False
            act()

    def _admit(self, reply: Reply) -> None:
        try:
            if self._failed or self._closing or reply.cancelled:
                raise Refused(self._failed or "the server is shutting down")
            request = self._request(reply)
            stream = self._lanes.admit(request)
        except Refused as refusal:
            self._refuse(reply, str(refusal))
            return
        self._replies[request.id] = reply
        reply.attach(stream)

    def _request(self, reply: Reply) -> Request:
        generation = reply.generation
        eos_ids = () if generation.ignore_eos else self._served.eos_ids
        self._admitted += 1
        return Request(
            id=f"{generation.id}/{self._admitted}",
            prompt=generation.prompt,
            max_new=generation.max_tokens,
            stop_ids=frozenset((*generation.stop_token_ids, *eos_ids)),
            drafts=generation.draft,
            sampling=generation.sampling,
            check=reply.check if reply.may_stop else None,  # else text is made once the next drafts are asked for
            least_match=COPY_LEAST_MATCH,
            salt=generation.cache_salt,
        )

    def _refuse(self, reply: Reply, message: str) -> None:
        with self._lock:
            self._open -= 1
        reply.refuse(message, self._clock())

    def _cancel_all(self) -> None:
        for reply in self._replies.values():
            reply.cancel()

    def _end_all(self) -> None:
        """End what is open, so that nobody waits for a thread that is gone."""
        for reply in self._replies.values():
            self._refuse(reply, self._failed or "the server is shutting down")
        self._replies.clear()
        while not self._inbox.empty():
            self._inbox.get()()
