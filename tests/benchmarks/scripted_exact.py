"""A stand-in for a started pair: replies follow from prompt and seed, and may be told to go wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from benchmarks.replies import Made
from tfjax.engine.api import Finished, Generation, Sink, Stats, Ticket, Tokens

Wrong = Callable[[Generation, tuple[int, ...]], tuple[int, ...]]


def stats(tokens: tuple[int, ...], *, drafted: bool, prompt: int = 5, **changes: Any) -> Stats:
    """Of a reply in whose every second round two drafts were verified, and one of them kept."""
    rounds = len(tokens) // 2 if drafted else 0
    values: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": len(tokens),
        "cached_tokens": 0,
        "rounds": rounds,
        "drafted": 2 * rounds,
        "accepted": rounds,
        "drafted_per_position": (rounds, rounds),
        "accepted_per_position": (rounds, 0),
        "drafted_rounds": rounds,
        "min_rows": 1,
        "queue_ms": 0.0,
        "prefill_ms": 0.0,
        "ttft_ms": 0.0,
        "decode_ms": 0.0,
        "seed": 0,
        "token_sha256": hashlib.sha256(repr(tokens).encode()).hexdigest(),
    }
    return Stats(**values | changes)


def made(tokens: tuple[int, ...], *, drafted: bool = True, reason: str = "length", **changes: Any) -> Made:
    return Made(tokens, Finished(reason, stats(tokens, drafted=drafted, **changes)))


def reply(generation: Generation) -> tuple[int, ...]:
    seed = f"{generation.prompt} {generation.sampling}"
    return tuple(hashlib.sha256(f"{seed} {i}".encode()).digest()[0] for i in range(generation.max_tokens))


class ScriptedEngine:
    """Ends every reply at once, on the caller's thread.

    Attributes:
        asked: every generation, in order.
        most_open: the most that were under way at once, where `held` keeps them open until another is asked for.
    """

    def __init__(
        self,
        wrong: Wrong | None = None,
        error: str | None = None,
        decode_ms: Callable[[Generation], float] = lambda generation: 1.0,
    ) -> None:
        self.tokenizer = SimpleNamespace(encode=lambda text: [ord(letter) % 251 for letter in text])
        self.asked: list[Generation] = []
        self._wrong = wrong
        self._error = error
        self._decode_ms = decode_ms

    def submit(self, generation: Generation, sink: Sink) -> Ticket:
        self.asked.append(generation)
        tokens = reply(generation)
        if self._wrong is not None:
            tokens = self._wrong(generation, tokens)
        for token in tokens:
            sink(Tokens((token,), ""))
        more = {"prompt": len(generation.prompt), "decode_ms": self._decode_ms(generation)}
        sink(Finished("length", stats(tokens, drafted=generation.draft, **more), self._error))
        return Ticket(lambda: None, lambda: False)


class ScriptedStart:
    """In place of `Started`."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.about = {"arithmetic": "none", "window_ms": {}, "drafter": {"name": "scripted"}, "dtype": "none"}
        self.priced: list[bool] = []
        self._engine = engine

    @contextmanager
    def engine(self, backend: Any = None, *, priced: bool = True) -> Iterator[ScriptedEngine]:
        self.priced.append(priced)
        yield self._engine
