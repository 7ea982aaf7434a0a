"""A model answers prompts, many side by side; its replies are written every few minutes, and a kill is survived."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol

from tfjax.engine.api import Event, Finished, Generation, Sampling
from tfjax.engine.engine import Engine
from tfjax.text.chat_template import ChatTemplate
from tfjax.text.tokenizer import Tokenizer
from tfjax.train.prompts import Prompt
from tfjax.train.shards import WrittenReply, write_shard, written

log = logging.getLogger(__name__)

SHARD_S = 120.0
ATTEMPTS = 50
WAIT_S = 5.0


class PromptSource(Protocol):
    """Where prompts come from."""

    def draw(self, index: int, attempt: int = 0) -> Prompt:
        """Prompt number `index`, another one at each further attempt. IndexError past the last."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is written.

    Attributes:
        tokens: reply tokens wanted in all.
        most_new: most tokens of one reply.
        parallel: replies under way at once.
        shard_s: seconds between two shards.
    """

    tokens: int
    most_new: int
    parallel: int
    shard_s: float = SHARD_S


@dataclass(slots=True)
class Rate:
    """Reply tokens a second since the start."""

    clock: Callable[[], float]
    tokens: int = 0
    since_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.since_s = self.clock()

    @property
    def per_s(self) -> float:
        return self.tokens / max(1e-9, self.clock() - self.since_s)


class PromptEncoder:
    """Prompts as token ids, no longer than leaves a reply its room."""

    def __init__(self, source: PromptSource, tokenizer: Tokenizer, most_tokens: int) -> None:
        self._source = source
        self._tokenizer = tokenizer
        self._most_tokens = most_tokens
        self._template = ChatTemplate(tokenizer.chat_template or "", tokenizer.bos_token, tokenizer.eos_token)

    def encode(self, index: int) -> tuple[Prompt, tuple[int, ...]] | None:
        """Prompt number `index`; None where every attempt at it is too long. IndexError past the last."""
        for attempt in range(ATTEMPTS):
            prompt = self._source.draw(index, attempt)
            text = (
                self._template.render([dict(message) for message in prompt.messages])
                if prompt.messages
                else prompt.text
            )
            tokens = tuple(self._tokenizer.encode(text))
            if 0 < len(tokens) <= self._most_tokens:
                return prompt, tokens
        return None


class Writer:
    """Keeps an engine busy with prompts and writes what comes back."""

    def __init__(
        self,
        engine: Engine,
        encoder: PromptEncoder,
        directory: Path,
        limits: Limits,
        progress: Callable[[str, float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._encoder = encoder
        self._directory = directory
        self._limits = limits
        self._progress = progress
        self._clock = clock
        self._events: SimpleQueue[tuple[int, Event]] = SimpleQueue()
        self._open: dict[int, tuple[Prompt, tuple[int, ...], list[int]]] = {}
        self._finished: list[WrittenReply] = []
        self._rate = Rate(clock)
        self._shard_due_s = clock() + limits.shard_s

    def run(self) -> int:
        """Write until there are enough tokens or no more prompts. Returns the reply tokens that the directory holds.

        What is finished is written also when this is interrupted; a kill loses what came since the last shard.

        Raises:
            RuntimeError: the engine failed.
        """
        done, total = written(self._directory)
        numbers: Iterator[int] = (number for number in itertools.count() if number not in done)
        try:
            while total < self._limits.tokens:
                while len(self._open) < self._limits.parallel and (number := next(numbers, None)) is not None:
                    if not self._submit(number):
                        numbers = iter(())
                if not self._open:
                    break
                new = self._take()
                if not new:
                    continue
                total += new
                self._progress("writing replies", min(1.0, total / self._limits.tokens))
                if self._clock() >= self._shard_due_s:
                    self._write(total)
        finally:
            self._write(total)
        return total

    def _submit(self, number: int) -> bool:
        """Queue a prompt. False where there is none of this number."""
        try:
            encoded = self._encoder.encode(number)
        except IndexError:
            return False
        if encoded is None:
            log.warning("prompt %d is too long in every attempt and is left out", number)
            return True
        prompt, tokens = encoded
        self._open[number] = prompt, tokens, []
        sampling = Sampling(temperature=prompt.temperature, seed=prompt.seed)
        most_new = min(self._limits.most_new, self._engine.context - len(tokens))
        self._engine.submit(
            Generation(f"prompt {number}", tokens, most_new, sampling),
            lambda event: self._events.put((number, event)),
        )
        return True

    def _take(self) -> int:
        """Wait for one event. Returns the tokens of the reply that it finished, else 0."""
        try:
            number, event = self._events.get(timeout=WAIT_S)
        except Empty:
            if failed := self._engine.status().failed:
                raise RuntimeError(f"the engine failed: {failed}") from None
            return 0
        if not isinstance(event, Finished):
            self._open[number][2].extend(event.tokens)
            self._rate.tokens += len(event.tokens)
            return 0
        prompt, tokens, reply = self._open.pop(number)
        if event.reason == "error":
            raise RuntimeError(f"prompt {number} failed: {event.error}")
        self._finished.append(WrittenReply(number, prompt.kind, prompt.temperature, tokens, tuple(reply)))
        return len(reply)

    def _write(self, total: int) -> None:
        self._shard_due_s = self._clock() + self._limits.shard_s
        if self._finished:
            path = write_shard(self._directory, self._finished, self._engine.tokenizer.vocab_size)
            self._finished = []
            log.info(
                "%s: %d of %d reply tokens, %.0f a second", path.name, total, self._limits.tokens, self._rate.per_s
            )
