"""Drafts copied from the stream's own prompt and reply."""

from __future__ import annotations

from collections.abc import Sequence

from tfjax.lanes.proposer import NOTHING, Proposal, agreeing
from tfjax.lanes.stream import Request
from tfjax.lanes.suffix_index import SuffixIndex

MOST_WIDTH = 64
CHANCES = tuple(0.94**place for place in range(1, MOST_WIDTH + 1))
"""That the first 1, 2, 3, ... tokens of a copy land, while copies do."""
FAILURES_BEFORE_SILENCE = 4
SILENT_ASKS = 16


class CopyDrafts:
    """Proposes what followed the longest earlier occurrence of the text's end.

    A proposal is judged by the tokens that came in its place, whether or not the loop had it verified. After
    FAILURES_BEFORE_SILENCE in a row of which nothing landed, the next SILENT_ASKS asks get no answer.
    """

    def __init__(self, least_match: int = 6, first_width: int = 1, most_width: int = 31) -> None:
        self._index = SuffixIndex()
        self._least_match = least_match
        self._most_width = min(most_width, MOST_WIDTH)
        self._first_width = min(first_width, self._most_width)
        self._width = self._first_width
        self._trust = 1.0
        self._failures = 0
        self._silent_asks = 0
        self._offered: tuple[int, ...] = ()

    def extend(self, tokens: Sequence[int]) -> None:
        self._index.extend(tokens)

    def propose(self, most: int) -> Proposal:
        if self._silent_asks:
            self._silent_asks -= 1
            return NOTHING
        match = self._index.longest()
        count = min(self._width, most)
        if match.length < self._least_match or count < 1:
            return NOTHING
        self._offered = self._index.copy(match, count)
        chances = tuple([self._trust * chance for chance in CHANCES[:count]])
        return Proposal(self._offered, chances, match.length)

    def pass_unread(self) -> bool:
        if self._silent_asks:
            self._silent_asks -= 1
            return True
        return self._index.longest().bound + 1 < self._least_match

    def observe(self, tokens: Sequence[int], drafted: int, alone: bool) -> None:
        self._index.extend(tokens)
        if not self._offered:
            return
        landed = agreeing(self._offered, tokens)
        self._offered = ()
        if landed:
            self._trust, self._failures = 1.0, 0
        else:
            self._fail()
        whole = 0 < drafted <= landed
        self._width = min(self._most_width, 2 * self._width + 1) if alone and whole else self._first_width

    def _fail(self) -> None:
        self._trust /= 2
        self._failures += 1
        if self._failures == FAILURES_BEFORE_SILENCE:
            self._failures, self._silent_asks = 0, SILENT_ASKS


def copies_for(first_width: int, most_width: int, request: Request) -> CopyDrafts:
    """The copies of one request."""
    return CopyDrafts(request.least_match, first_width, most_width)
