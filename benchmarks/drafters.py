"""For proofs: a proposer that knows the right reply and misses on purpose, and a target that is watched."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from tfjax.lanes.backend import Backend
from tfjax.lanes.proposer import NOTHING, Proposal
from tfjax.lanes.window import Window


class Watched:
    """A target that counts the windows with drafts that another stream's window was verified beside."""

    def __init__(self, target: Backend):
        self._target = target
        self.shared_rounds = 0

    def verify(self, windows: Sequence[Window]) -> Any:
        if len(windows) > 1:
            self.shared_rounds += sum(bool(window.drafts) for window in windows)
        return self._target.verify(windows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


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
