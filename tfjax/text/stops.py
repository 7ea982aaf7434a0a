"""Stop strings in a text that comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Ends a text before the first stop string in it, wherever the pieces are cut.

    First is the one that is complete first; of several complete at one character, the longest. Only a tail that may
    still become a stop string is held back.

    Attributes:
        hit: whether a stop string was found. All later text is dropped.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in dict.fromkeys(stops) if stop]
        self._borders = [_borders(stop) for stop in self._stops]
        # For every stop string, how many of its first characters the text so far ends with.
        self._matched = [0] * len(self._stops)
        self._held = ""
        self.hit = False

    def push(self, text: str) -> str:
        """The text that is certain to come before any stop string."""
        if self.hit:
            return ""
        if not self._stops:
            return text
        seen = self._held + text
        for position, char in enumerate(text, start=len(self._held) + 1):
            length = self._advance(char)
            if length:
                self.hit = True
                self._held = ""
                return seen[: position - length]
        certain = len(seen) - max(self._matched, default=0)
        self._held = seen[certain:]
        return seen[:certain]

    def flush(self) -> str:
        """What was held back, at the end of the text."""
        held, self._held = self._held, ""
        self._matched = [0] * len(self._stops)
        return held

    def _advance(self, char: str) -> int:
        """Takes one character; returns the length of the longest stop string that it completes, else 0."""
        longest = 0
        for index, (stop, borders) in enumerate(zip(self._stops, self._borders, strict=True)):
            matched = self._matched[index]
            while matched and stop[matched] != char:
                matched = borders[matched - 1]
            if stop[matched] == char:
                matched += 1
            self._matched[index] = matched
            if matched == len(stop):
                longest = max(longest, matched)
        return longest


def _borders(stop: str) -> list[int]:
    """For each prefix of `stop`, the length of its longest proper border (Knuth, Morris and Pratt 1977)."""
    borders = [0] * len(stop)
    length = 0
    for index in range(1, len(stop)):
        while length and stop[index] != stop[length]:
            length = borders[length - 1]
        if stop[index] == stop[length]:
            length += 1
        borders[index] = length
    return borders
