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
        self._nodes: list[Node] = []
        self._seen = 0

    @property
    def known(self) -> bool:
        """Whether any hold was seen."""
        return bool(self._nodes) or (self._usual is not None and self._usual.known)

    def observe(self, chain: Sequence[float]) -> None:
        """Learn from the chances of one hold's drafts; each is that of the draft and all before it."""
        if self._usual is not None and self._seen % TELLS_EVERY == 0:
            self._usual.observe(chain)
        depth = len(chain)
        if depth > len(self._nodes):
            self._nodes = self.nodes(depth) or [(0.0, 0.0)] * depth
        rate = max(STEADY_RATE, 1 / (self._first_weight + self._seen))
        self._seen += 1
        rest = 1 - rate
        self._nodes[:depth] = [
            (rest * often + rate, rest * tokens + rate * chance) if chance >= LIKELY else (rest * often, rest * tokens)
            for (often, tokens), chance in zip(self._nodes, chain, strict=False)
        ]

    def nodes(self, most: int) -> list[Node]:
        """For each depth up to `most`; empty before anything was seen. Depths never seen fall like the first."""
        found = self._nodes[:most]
        if self._usual is not None and len(found) < most:
            found += self._usual.nodes(most)[len(found) :]
        while found and len(found) < most:
            found.append((found[-1][0] * found[0][0], found[-1][1] * found[0][1]))
        return found
