"""A small deterministic engine: its own thread, scripted tokens, and the engine's contract kept to the letter.

Tokens are bytes, so a character of four bytes is split over four tokens. A gate makes every round wait for the test.
"""

from __future__ import annotations

import codecs
import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tests.server.byte_tokenizer import EOS, IM_END, ByteTokenizer
from tfjax.engine.api import (
    EngineStopped,
    Finished,
    Generation,
    QueueFull,
    Sink,
    Stats,
    Ticket,
    TokenLogprob,
    Tokens,
)


@dataclass(frozen=True, slots=True)
class FakeStatus:
    phase: str = "ready"
    fraction: float = 1.0
    ready: bool = True
    failed: str | None = None
    running: int = 0
    waiting: int = 0
    stalled_s: float = 0.0


class _Stream:
    """One live request: decodes, matches stop strings, counts."""

    def __init__(self, generation: Generation, sink: Sink, tokens: Iterator[int], prefill_rounds: int) -> None:
        self.generation = generation
        self.sink = sink
        self.script = tokens
        self.prefill_left = prefill_rounds
        self.tokens: list[int] = []
        self.cancelled = False
        self.rounds = 0
        self.submitted_s = time.monotonic()
        self.first_s: float | None = None
        self.cached = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._chars = 0

    def round(self, most: int) -> str | None:
        """Emits up to `most` tokens; returns the reason if the reply is over."""
        if self.prefill_left:
            self.prefill_left -= 1
            return None
        self.rounds += 1
        self.first_s = self.first_s or time.monotonic()
        tokens: list[int] = []
        texts: list[str] = []
        ends: list[int] = []
        reason = None
        while reason is None and len(tokens) < most:
            token = next(self.script)
            tokens.append(token)
            self.tokens.append(token)
            text, reason = self._push(token)
            if reason is None and len(self.tokens) >= self.generation.max_tokens:
                reason = "length"
            if reason is not None:
                text += self._flush(reason)
            texts.append(text)
            self._chars += len(text)
            ends.append(self._chars)
        logprobs = None
        if self.generation.sampling.logprobs is not None:
            logprobs = tuple(logprob_of(token, self.generation.sampling.logprobs) for token in tokens)
        self.sink(Tokens(tuple(tokens), "".join(texts), logprobs, tuple(ends)))
        return reason

    def _push(self, token: int) -> tuple[str, str | None]:
        generation = self.generation
        ends = token in generation.stop_token_ids or (token in (EOS, IM_END) and not generation.ignore_eos)
        if ends and len(self.tokens) > generation.sampling.min_tokens:
            return "", "stop"
        self._held += self._decoder.decode(bytes([token]) if token < 256 else b"")
        for stop in generation.stop:
            at = self._held.find(stop)
            if at >= 0:
                text, self._held = self._held[:at], ""
                return text, "stop"
        keep = max(
            (n for stop in generation.stop for n in range(len(stop)) if self._held.endswith(stop[:n])), default=0
        )
        text, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return text, None

    def _flush(self, reason: str) -> str:
        held, self._held = self._held, ""
        return held if reason == "stop" and self.generation.stop else held + self._decoder.decode(b"", final=True)

    def stats(self) -> Stats:
        now = time.monotonic()
        first = self.first_s or now
        count = len(self.tokens)
        drafted = 0 if not self.generation.draft else count
        return Stats(
            prompt_tokens=len(self.generation.prompt),
            completion_tokens=count,
            cached_tokens=min(self.cached, len(self.generation.prompt) - 1),
            rounds=self.rounds,
            drafted=drafted,
            accepted=drafted // 2,
            drafted_per_position=(drafted,) if drafted else (),
            accepted_per_position=(drafted // 2,) if drafted else (),
            drafted_rounds=self.rounds if drafted else 0,
            min_rows=1,
            queue_ms=0.5,
            prefill_ms=(first - self.submitted_s) * 1000,
            ttft_ms=(first - self.submitted_s) * 1000,
            decode_ms=(now - first) * 1000,
            seed=self.generation.sampling.seed,
            token_sha256=hashlib.sha256(bytes(str(self.tokens), "ascii")).hexdigest(),
            stood_aside_rounds=drafted,
            probes=1 if drafted else 0,
        )


def logprob_of(token: int, tops: int) -> TokenLogprob:
    others = [(other, -3.0 - n) for n, other in enumerate(range(97, 97 + 21)) if other != token]
    return TokenLogprob(token, -0.25, ((token, -0.25), *others)[:tops])


def says(text: str | bytes, *, end: int | None = EOS) -> Callable[[Generation], Iterator[int]]:
    """A script: the text over and over, or once when it has an `end` token."""
    data = list(text.encode() if isinstance(text, str) else text)

    def script(generation: Generation) -> Iterator[int]:
        while True:
            yield from data
            if end is not None:
                while True:
                    yield end

    return script


class FakeEngine:
    """See the module. `gate` is acquired once a round; `fail_with` makes the next round fail its streams.

    `cached` is how many tokens of each prompt it says it knew before.
    `plain_per_round`: tokens a round of streams without drafts, where they differ.
    """

    def __init__(
        self,
        script: Callable[[Generation], Iterator[int]] | None = None,
        *,
        tokenizer: ByteTokenizer | None = None,
        context: int = 4096,
        parallel: int = 2,
        max_queue: int = 4,
        per_round: int = 3,
        plain_per_round: int | None = None,
        prefill_rounds: int = 0,
        round_s: float = 0.0,
        gate: threading.Semaphore | None = None,
        generation_config: Mapping[str, object] | None = None,
    ) -> None:
        self.tokenizer = tokenizer or ByteTokenizer()
        self.context = context
        self.model_id = "fake-1"
        self.generation_config: Mapping[str, object] = generation_config or {}
        self.submitted: list[Generation] = []
        self.ended: dict[str, str] = {}
        self.fail_with: str | None = None
        self.failed: str | None = None
        self.stalled_s = 0.0
        self.cached = 0
        self.rounds = 0
        self._script = script or says("Hello, world! ")
        self._parallel, self._max_queue, self._per_round = parallel, max_queue, per_round
        self._plain_per_round = plain_per_round or per_round
        self._prefill_rounds, self._round_s, self._gate = prefill_rounds, round_s, gate
        self._waiting: deque[_Stream] = deque()
        self._running: list[_Stream] = []
        self._wake = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="fake-engine", daemon=True)
        self._thread.start()

    def submit(self, generation: Generation, sink: Sink) -> Ticket:
        with self._wake:
            if self._stopped:
                raise EngineStopped("stopped")
            if len(self._running) + len(self._waiting) >= self._parallel + self._max_queue:
                raise QueueFull(f"{len(self._waiting)} requests wait; the limit is {self._max_queue} (--max-queue).")
            stream = _Stream(generation, sink, self._script(generation), self._prefill_rounds)
            stream.cached = self.cached
            self.submitted.append(generation)
            self._waiting.append(stream)
            self._wake.notify()

        def cancel() -> None:
            with self._wake:
                stream.cancelled = True
                self._wake.notify()

        return Ticket(cancel, lambda: stream in self._waiting)

    def capabilities(self) -> dict[str, object]:
        return {"arithmetic": "scripted", "lanes": self._parallel}

    def status(self) -> FakeStatus:
        return FakeStatus(
            failed=self.failed, stalled_s=self.stalled_s, running=len(self._running), waiting=len(self._waiting)
        )

    def metrics(self) -> Mapping[str, float]:
        return {"rounds_total": self.rounds, "lanes_active": len(self._running)}

    def drain(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while (self._running or self._waiting) and time.monotonic() < deadline_s:
            time.sleep(0.005)

    def close(self) -> None:
        with self._wake:
            self._stopped = True
            self._wake.notify()
        if self._gate is not None:
            self._gate.release(1000)
        self._thread.join(5)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._running or self._waiting or self._stopped):
                    self._wake.wait()
                if self._stopped:
                    break
                self._sweep()
            if self._gate is not None and not self._gate.acquire(timeout=0.01):
                continue
            self.rounds += 1
            for stream in list(self._running):
                most = self._per_round if stream.generation.draft else self._plain_per_round
                reason = "error" if self.fail_with else stream.round(most)
                if reason is not None:
                    self._end(stream, reason)
            if self._round_s:
                time.sleep(self._round_s)
        for stream in [*self._running, *self._waiting]:
            self._end(stream, "cancelled")

    def _sweep(self) -> None:
        for stream in [*self._running, *self._waiting]:
            if stream.cancelled:
                self._end(stream, "cancelled")
        while self._waiting and len(self._running) < self._parallel:
            self._running.append(self._waiting.popleft())

    def _end(self, stream: _Stream, reason: str) -> None:
        for group in (self._running, self._waiting):
            if stream in group:
                group.remove(stream)
        self.ended[stream.generation.id] = reason
        error = f"/secret/path: {self.fail_with}" if reason == "error" else None
        stream.sink(Finished(reason, stream.stats(), error))
