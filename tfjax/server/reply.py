"""The one path from engine events to a reply; streams and whole replies both fold the pieces that it yields."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tfjax.engine.api import EngineStopped, Finished, QueueFull, Ticket, TokenLogprob, Tokens
from tfjax.server.channel import Channel
from tfjax.server.errors import ApiError, internal, unavailable
from tfjax.server.metrics import ServerMetrics
from tfjax.server.plan import Plan
from tfjax.server.port import EnginePort

log = logging.getLogger("tfjax.server")

ENDS_WELL = ("stop", "length")


@dataclass(frozen=True, slots=True)
class Piece:
    """What became certain of one choice; the last piece carries `finished`.

    `offsets[i]` is the character of the choice's text at which the text of `logprobs[i].token` begins.
    """

    choice: int
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()
    offsets: tuple[int, ...] = ()
    finished: Finished | None = None


@dataclass(slots=True)
class _Choice:
    """Holds back logprobs of tokens whose text is not certain yet, so that they travel with their text."""

    index: int
    chars: int = 0
    end: int = 0
    last_s: float | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def gap_s(self) -> float | None:
        """Seconds since the last call."""
        now, last = time.monotonic(), self.last_s
        self.last_s = now
        return None if last is None else now - last

    def push(self, event: Tokens) -> Piece | None:
        self.chars += len(event.text)
        if event.logprobs is not None:
            self.logprobs.extend(event.logprobs)
            for at in range(len(event.tokens)):
                self.offsets.append(self.end)
                self.end = event.text_ends[at] if at < len(event.text_ends) else self.chars
        return self._piece(event.text, None) if event.text else None

    def finish(self, event: Finished) -> Piece:
        return self._piece("", event)

    def _piece(self, text: str, finished: Finished | None) -> Piece:
        piece = Piece(self.index, text, tuple(self.logprobs), tuple(self.offsets), finished)
        self.logprobs.clear()
        self.offsets.clear()
        return piece


class Reply:
    """The generations of one request in flight. `pieces` yields None for each `tick_s` of silence."""

    def __init__(
        self,
        plan: Plan,
        engine: EnginePort,
        metrics: ServerMetrics,
        *,
        tick_s: float,
        queue_wait_s: float,
        keep_text: bool,
    ):
        self.plan = plan
        self.finished: list[Finished] = []
        self._engine = engine
        self._metrics = metrics
        self._tick_s = tick_s
        self._queue_wait_s = queue_wait_s
        self._channel = Channel()
        self._tickets: list[Ticket] = []
        self._keep_text = keep_text
        self._texts: list[str] = []

    def submit(self) -> None:
        """Gives all choices to the engine, or none.

        Raises:
            ApiError: 503 when the engine's queue is full or it has stopped.
        """
        try:
            for index, generation in enumerate(self.plan.generations):
                self._tickets.append(self._engine.submit(generation, self._channel.sink(index)))
        except QueueFull as error:
            self.cancel()
            self._metrics.rejected("queue_full")
            raise unavailable(str(error) or "The queue is full; try again.", "queue_full") from None
        except EngineStopped:
            self.cancel()
            self._metrics.rejected("stopped")
            raise unavailable("The server takes no new requests.", "stopped") from None

    async def pieces(self) -> AsyncIterator[Piece | None]:
        """Yields what became certain, in order of arrival, until every choice is finished.

        Raises:
            ApiError: the engine ended a choice otherwise than by stop or length, or no lane came free in time.
        """
        choices = [_Choice(index) for index in range(len(self.plan.generations))]
        open_choices = len(choices)
        submitted_s = time.monotonic()
        queue_s: float | None = self._queue_wait_s
        while open_choices:
            item = await self._channel.next(self._tick_s if queue_s is None else min(self._tick_s, queue_s))
            if item is None:
                queue_s = self._still_queued_s(time.monotonic() - submitted_s)
                yield None
                continue
            queue_s = None
            index, event = item
            if isinstance(event, Tokens):
                self._metrics.tokens(len(event.tokens), choices[index].gap_s())
                piece = choices[index].push(event)
                if piece is not None:
                    if self._keep_text:
                        self._texts.append(piece.text)
                    yield piece
            else:
                self._check(event)
                open_choices -= 1
                self.finished.append(event)
                self._metrics.choice_finished(event, time.monotonic() - submitted_s)
                yield choices[index].finish(event)

    def prompt_text(self) -> str:
        return self._engine.tokenizer.decode(self.plan.generations[0].prompt)

    def text(self) -> str:
        """What was generated so far, if it was to be kept; choices run into each other."""
        return "".join(self._texts)

    def fail(self, error: ApiError) -> None:
        """Ends the reply with `error`; for a server that stops."""
        self.cancel()
        self._channel.fail(error)

    def cancel(self) -> None:
        """Frees the lanes; finished choices do not mind."""
        for ticket in self._tickets:
            ticket.cancel()

    def close(self) -> None:
        """Cancels what still runs and drops what still arrives."""
        if len(self.finished) < len(self.plan.generations):
            self.cancel()
        self._channel.close()

    def _still_queued_s(self, waited_s: float) -> float | None:
        """How much longer the request may wait for a lane; None when it waits for none."""
        if not any(ticket.waiting() for ticket in self._tickets):
            return None
        if waited_s >= self._queue_wait_s:
            self._metrics.rejected("queue_wait")
            raise unavailable(f"No lane came free in {self._queue_wait_s:g} s; try again.", "queue_wait")
        return self._queue_wait_s - waited_s

    def _check(self, event: Finished) -> None:
        if event.reason in ENDS_WELL:
            return
        if event.reason == "cancelled":
            raise unavailable("The server stopped before the reply was complete.", "stopped")
        log.error("request %s ended by the engine: %s: %s", self.plan.id, event.reason, event.error)
        raise internal()
