"""Proposers for proofs: they know the right reply and miss on purpose, or watch another proposer."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from tfjax.lanes.proposer import NOTHING, Proposal, Proposer

DEEPEST = 31


@dataclass(slots=True)
class DraftCounts:
    """What became of drafts. Index: place in the window, first draft first.

    Attributes:
        kept, rejected: drafts by place, those after the first miss of a window left out.
        shared_rounds: rounds with drafts that another stream was part of.
    """

    kept: list[int] = field(default_factory=lambda: [0] * DEEPEST)
    rejected: list[int] = field(default_factory=lambda: [0] * DEEPEST)
    shared_rounds: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, drafted: int, landed: int, alone: bool) -> None:
        with self._lock:
            for place in range(min(drafted, landed)):
                self.kept[place] += 1
            if landed < drafted:
                self.rejected[landed] += 1
            self.shared_rounds += bool(drafted) and not alone


class Watched:
    """Counts what becomes of another proposer's drafts."""

    def __init__(self, inner: Proposer, counts: DraftCounts):
        self._inner = inner
        self._counts = counts
        self._offered: tuple[int, ...] = ()

    def extend(self, tokens: Sequence[int]) -> None:
        self._inner.extend(tokens)

    def propose(self, most: int) -> Proposal:
        proposal = self._inner.propose(most)
        self._offered = proposal.tokens
        return proposal

    def pass_unread(self) -> bool:
        return self._inner.pass_unread()

    def observe(self, tokens: Sequence[int], drafted: int, alone: bool) -> None:
        if drafted:
            landed = 0
            while landed < min(drafted, len(tokens)) and self._offered[landed] == tokens[landed]:
                landed += 1
            self._counts.add(drafted, landed, alone)
        self._inner.observe(tokens, drafted, alone)


class KnowingProposer:
    """Right with a given probability at each place, from a reply that is known beforehand.

    After a miss it goes on with garbage, as a real drafter would.
    """

    def __init__(self, reply: Sequence[int], prompt_rows: int, vocab: int, *, right: float = 0.6, deepest: int = 7):
        self._reply = tuple(reply)
        self._vocab = vocab
        self._right = right
        self._deepest = deepest
        self._emitted = -prompt_rows

    def extend(self, tokens: Sequence[int]) -> None:
        self._emitted += len(tokens)

    def propose(self, most: int) -> Proposal:
        depth = min(most, 1 + self._hash(self._emitted, "depth") % self._deepest, len(self._reply) - self._emitted)
        if depth < 1:
            return NOTHING
        tokens, lost = [], False
        for place in range(self._emitted, self._emitted + depth):
            lost = lost or self._hash(place, str(self._emitted)) % 1000 >= 1000 * self._right
            tokens.append(self._hash(place, "garbage") % self._vocab if lost else self._reply[place])
        # High chances, so that prices do not spare the deep drafts that the proof is about.
        return Proposal(tuple(tokens), tuple(0.99 ** (i + 1) for i in range(depth)))

    def pass_unread(self) -> bool:
        return False

    def observe(self, tokens: Sequence[int], drafted: int, alone: bool) -> None:
        self._emitted += len(tokens)

    @staticmethod
    def _hash(number: int, salt: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{number} {salt}".encode()).digest()[:6], "little")
