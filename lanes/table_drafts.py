"""Drafts from a table of frequent continuations: what followed the last one to three tokens in other replies."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from tfjax.lanes.proposer import NOTHING, Proposal

TOKEN_BITS = 21
"""Bits of a token id in a key: three of them fit into 64 bits."""
LONGEST = 3
"""Tokens of the longest context."""

MOST_DRAFTS = 8
LEAST_CHANCE = 0.05
MOST_CHANCE = 0.98
RATE = 0.05
PRIOR_WEIGHT = 4.0
MOST_SCALE = 1.5
FAILED_CHANCES_BEFORE_SILENCE = 4.0
SILENT_ASKS = 16


@dataclass(slots=True)
class Calibration:
    """How often guesses land against how often they were said to, the latest counting most."""

    landed: float = PRIOR_WEIGHT
    expected: float = PRIOR_WEIGHT

    @property
    def scale(self) -> float:
        """What a chance is to be multiplied by."""
        return min(MOST_SCALE, self.landed / self.expected)

    def observe(self, chance: float, landed: bool) -> None:
        self.landed += RATE * (PRIOR_WEIGHT - self.landed) + landed
        self.expected += RATE * (PRIOR_WEIGHT - self.expected) + chance


@dataclass(frozen=True, slots=True)
class Continuations:
    """What most often follows contexts of one length.

    Attributes:
        keys: the contexts, packed by `key_of`, rising.
        tokens: for each the token that follows.
        chances: how often it does, in 255ths.
    """

    keys: array[int]
    tokens: array[int]
    chances: array[int]


class Table:
    """Continuations of contexts of 1, 2, ... tokens. One serves all streams."""

    def __init__(self, orders: Sequence[Continuations]) -> None:
        """`orders[n - 1]` holds contexts of n tokens; at most LONGEST."""
        self._orders = tuple(
            (order.keys, order.tokens, order.chances, (1 << TOKEN_BITS * length) - 1)
            for length, order in enumerate(orders, start=1)
        )[::-1]

    def after(self, key: int) -> tuple[int, float] | None:
        """The likeliest token after the longest known context at the end of `key`, and its chance."""
        for keys, tokens, chances, mask in self._orders:
            wanted = key & mask
            place = bisect_left(keys, wanted)
            if place < len(keys) and keys[place] == wanted:
                return tokens[place], chances[place] / 255
        return None


def key_of(tokens: Sequence[int]) -> int:
    """Packs a context; the last token takes the lowest bits, so that its shorter contexts are found by a mask."""
    key = 0
    for token in tokens:
        key = key << TOKEN_BITS | token
    return key


_MASK = (1 << TOKEN_BITS * LONGEST) - 1


class TableDrafts:
    """Proposes chains of frequent continuations of one stream's last tokens.

    Every guess is judged by the token that came in its place, whether or not it was offered or verified; chances are
    scaled by how guesses fared in this stream, those on real text and those on a guess apart. After offers that were
    worth FAILED_CHANCES_BEFORE_SILENCE landings together and of which nothing landed, the next SILENT_ASKS asks get no
    answer.
    """

    def __init__(self, table: Table, most_drafts: int = MOST_DRAFTS) -> None:
        self._table = table
        self._most_drafts = most_drafts
        self._key = _MASK  # no token: an empty context has no continuation of its own
        self._guesses: list[tuple[int, float]] = []
        self._first = Calibration()
        self._later = Calibration()
        self._failed_chances = 0.0
        self._silent_asks = 0
        self._first_chance = 0.0

    def extend(self, tokens: Sequence[int]) -> None:
        key = self._key
        for token in tokens[-LONGEST:]:
            key = (key << TOKEN_BITS | token) & _MASK
        self._key = key

    def propose(self, most: int) -> Proposal:
        if self._silent_asks:
            self._silent_asks -= 1
            return NOTHING
        scale, later_scale = self._first.scale, self._later.scale
        tokens: list[int] = []
        chances: list[float] = []
        chance, key = 1.0, self._key
        for _ in range(min(most, self._most_drafts)):
            guess = self._table.after(key)
            if guess is None:
                break
            self._guesses.append(guess)
            chance *= min(MOST_CHANCE, scale * guess[1])
            if chance < LEAST_CHANCE:
                break
            tokens.append(guess[0])
            chances.append(chance)
            key = (key << TOKEN_BITS | guess[0]) & _MASK
            scale = later_scale
        self._first_chance = chances[0] if chances else 0.0
        return Proposal(tuple(tokens), tuple(chances)) if tokens else NOTHING

    def pass_unread(self) -> bool:
        if self._silent_asks:
            self._silent_asks -= 1
            return True
        return False

    def observe(self, tokens: Sequence[int], drafted: int, alone: bool) -> None:
        self.extend(tokens)
        guesses, self._guesses = self._guesses, []
        calibration = self._first
        for (guess, chance), token in zip(guesses, tokens, strict=False):
            calibration.observe(chance, guess == token)
            if guess != token:
                break
            calibration = self._later
        if guesses and tokens:
            self._judge(landed=guesses[0][0] == tokens[0])

    def _judge(self, landed: bool) -> None:
        self._failed_chances = 0.0 if landed else self._failed_chances + self._first_chance
        if self._failed_chances >= FAILED_CHANCES_BEFORE_SILENCE:
            self._failed_chances, self._silent_asks = 0.0, SILENT_ASKS
