"""What is left of holds once their drafts were weighed: those that are likely enough."""

from __future__ import annotations

from collections.abc import Sequence

LIKELY = 0.3
FIRST_WEIGHT, STEADY_RATE = 8, 0.05
TELLS_EVERY = 8

Node = tuple[float, float]
"""Of a draft that is verified only where it turns out likely: how often it does, and the tokens that this yields."""


class Sureness:
    """For each depth, how often a weighed draft is likely, and the tokens that it yields where it is.

    A draft is likely where the chance that it and all before it land is at least `LIKELY`. A hold is worth more than
    its drafts land on average, since the unlikely ones are dropped before they cost rows; where a row costs more or
    less than that, more is to be had than this says.

    With a `usual`, that of all streams, it starts from there and learns much at first, slowly later; every eighth hold
    lets the others learn.
    """

    def __init__(self, usual: Sureness | None = None) -> None:
        self._usual = usual
        self._first_weight = FIRST_WEIGHT if usual else 1
        self._rows: list[float] = []
        self._tokens: list[float] = []
        self._seen = 0

    @property
    def known(self) -> bool:
        """Whether any hold was seen."""
        return bool(self._rows) or (self._usual is not None and self._usual.known)

    def observe(self, chain: Sequence[float]) -> None:
        """Learn from the chances of one hold's drafts; each is that of the draft and all before it."""
        if self._usual is not None and self._seen % TELLS_EVERY == 0:
            self._usual.observe(chain)
        depth = len(chain)
        if depth > len(self._rows):
            for rows, tokens in (self.nodes(depth) or [(0.0, 0.0)] * depth)[len(self._rows) :]:
                self._rows.append(rows)
                self._tokens.append(tokens)
        rate = max(STEADY_RATE, 1 / (self._first_weight + self._seen))
        self._seen += 1
        rest, likely = 1 - rate, sum([chance >= LIKELY for chance in chain])
        often = [rest * rows for rows in self._rows[:depth]]
        yields = [rest * tokens for tokens in self._tokens[:depth]]
        often[:likely] = [rows + rate for rows in often[:likely]]
        yields[:likely] = [tokens + rate * chance for tokens, chance in zip(yields, chain[:likely], strict=False)]
        self._rows[:depth], self._tokens[:depth] = often, yields

    def nodes(self, most: int) -> list[Node]:
        """For each depth up to `most`; empty before anything was seen. Depths never seen fall like the first."""
        found = list(zip(self._rows[:most], self._tokens[:most], strict=True))
        if self._usual is not None and len(found) < most:
            found += self._usual.nodes(most)[len(found) :]
        while found and len(found) < most:
            found.append((found[-1][0] * found[0][0], found[-1][1] * found[0][1]))
        return found
