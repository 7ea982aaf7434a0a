"""Finds where the end of a growing text occurred before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

GRAM = 3
MOST_MATCH = 64
MOST_CANDIDATES = 256


@dataclass(frozen=True, slots=True)
class Match:
    """An earlier place whose preceding tokens equal the text's last ones.

    Attributes:
        end: index of the token that followed there (the text's length where nothing was found).
        length: tokens that agree, at most MOST_MATCH; 0 where nothing was found.
        bound: no place at all in the text agrees with more tokens than this.
    """

    end: int
    length: int
    bound: int


class SuffixIndex:
    """The tokens of one text and the places of each of its GRAM-token runs.

    A lookup examines the latest MOST_CANDIDATES places that share the last GRAM tokens, so that its time is bounded for
    a text that repeats itself.
    """

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = {}
        self._last: Match | None = None

    def extend(self, tokens: Sequence[int]) -> None:
        text = self._tokens
        ends = self._ends
        for token in tokens:
            text.append(token)
            gram = tuple(text[-GRAM:])
            places = ends.get(gram)
            if places is None:
                ends[gram] = [len(text)]
            else:
                places.append(len(text))
        self._last = None

    def longest(self) -> Match:
        """The earlier place that agrees with the text's end on the most tokens; the latest one on ties."""
        if self._last is None:
            self._last = self._find()
        return self._last

    def copy(self, match: Match, count: int) -> tuple[int, ...]:
        """The `count` tokens that followed the match; past the text's end it repeats what lies in between."""
        return tuple(islice(cycle(self._tokens[match.end : match.end + count]), count))

    def _find(self) -> Match:
        text, size = self._tokens, len(self._tokens)
        places = self._ends.get(tuple(text[-GRAM:]), [])
        end, length, wanted = size, 0, text[-1:]
        for place in reversed(places[-1 - MOST_CANDIDATES : -1]):
            if text[place - length - 1 : place] == wanted:  # never equal where it would start before the text
                end, length = place, self._agreement(place)
                if length == MOST_MATCH:
                    break
                wanted = text[-length - 1 :]
        complete = len(places) <= MOST_CANDIDATES + 1
        return Match(end, length, max(length, GRAM - 1) if complete else MOST_MATCH)

    def _agreement(self, place: int) -> int:
        """How many tokens before `place` agree with the text's end, at most MOST_MATCH."""
        text = self._tokens
        most = min(place, MOST_MATCH)
        if text[place - most : place] == text[-most:]:
            return most
        length = GRAM
        while text[place - length - 1] == text[-length - 1]:
            length += 1
        return length
