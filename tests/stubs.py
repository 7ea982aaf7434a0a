"""Scripted models for tests: a backend with a real cache, drafters with known manners, a clock to be told the time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.scripted_backend import (
    BackendFailureError,
    BrokenContractError,
    FakeClock,
    ScriptedBackend,
    require,
)
from tests.scripts import (
    EOS,
    VOCAB,
    Script,
    hashed,
    listed,
    logprob_of,
    looping,
    penalised,
    serial,
    teasing,
)
from tfjax.lanes.proposer import NOTHING, Proposal
from tfjax.lanes.stream import Request, Stream

__all__ = [
    "EOS",
    "VOCAB",
    "BackendFailureError",
    "BrokenContractError",
    "FakeClock",
    "Recorder",
    "Script",
    "ScriptedBackend",
    "ScriptedProposer",
    "hashed",
    "listed",
    "logprob_of",
    "looping",
    "penalised",
    "require",
    "serial",
    "teasing",
]

# Drafters.


class ScriptedProposer:
    """Knows the target's script, and uses it in one of these manners.

    perfect: always right. wrong: never. mixed: right for the first `k` drafts. short: right, half as many as it could.
    empty: none. hostile: ids outside the vocabulary and EOS in the middle. garbage: random ids.
    """

    MODES = ("perfect", "wrong", "mixed", "short", "empty", "hostile", "garbage")

    def __init__(self, request: Request, mode: str, k: int = 2, limit: int = 1 << 30) -> None:
        self.request = request
        self.mode = mode
        self.k = k
        self.limit = limit
        self.context: list[int] = []
        self.asks = 0
        self.observed: list[tuple[int, int]] = []
        self._random = random.Random(hash(request.prompt))

    def extend(self, tokens: Sequence[int]) -> None:
        self.context += tokens

    def propose(self, most: int) -> Proposal:
        self.asks += 1
        count = min(most, self.limit - len(self.context))
        if self.mode == "short":
            count = -(-count // 2)
        if count < 1 or self.mode == "empty":
            return NOTHING
        tokens = tuple(self._guess(count))
        return Proposal(tokens, tuple(0.9 ** (place + 1) for place in range(count)))

    def pass_unread(self) -> bool:
        return self.mode == "empty"

    def observe(self, tokens: Sequence[int], drafted: int, alone: bool) -> None:
        self.context += tokens
        self.observed.append((len(tokens), drafted))

    def _guess(self, count: int) -> list[int]:
        if self.mode == "garbage":
            return [self._random.randrange(VOCAB) for _ in range(count)]
        right: list[int] = []
        for _ in range(count):
            right.append(self.request.sampling(tuple(self.context + right), len(self.request.prompt)))
        wrong = [(token + 1) % VOCAB for token in right]
        match self.mode:
            case "wrong":
                return wrong
            case "mixed":
                return right[: self.k] + wrong[self.k :]
            case "hostile":
                return self._poisoned(right)
        return right

    def _poisoned(self, right: list[int]) -> list[int]:
        poison = self._random.choice([VOCAB, -1, 1 << 40, EOS])
        place = self._random.randrange(len(right))
        return [*right[:place], poison, *right[place + 1 :]]


# The listener.


class Recorder:
    """A listener that remembers. Checks that nothing comes after the end."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[int]] = {}
        self.logprobs: dict[str, list[Any]] = {}
        self.deliveries: Counter[str] = Counter()
        self.finished: dict[str, Stream] = {}

    def on_tokens(self, stream: Stream, tokens: Sequence[int], logprobs: Sequence[Any] | None) -> None:
        name = stream.request.id
        require(name not in self.finished, "tokens after the end")
        require(bool(tokens), "nothing to tell")
        self.deliveries[name] += 1
        self.tokens.setdefault(name, []).extend(tokens)
        if logprobs is not None:
            require(len(logprobs) == len(tokens), "one logprob entry per token")
            self.logprobs.setdefault(name, []).extend(logprobs)

    def on_finish(self, stream: Stream) -> None:
        require(stream.request.id not in self.finished, "ended twice")
        self.finished[stream.request.id] = stream

    def reply(self, name: str) -> tuple[list[int], str | None, list[Any]]:
        """Tokens, reason and logprobs of a finished request, in the form of `serial`."""
        return self.tokens.get(name, []), self.finished[name].reason, self.logprobs.get(name, [])
