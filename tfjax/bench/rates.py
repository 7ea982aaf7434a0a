"""Rates of streamed replies, and ratios of paired runs. Nothing here reads a clock.

The stream says when text came and how many tokens the whole reply has, but not where one token ends and the next
begins. Within one reply tokens are therefore spread over its characters evenly. Replies of equal text are cut alike,
so that in their ratio nothing of this is left.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tfjax.bench.reply import Reply

LOOP_CHARS = 64
"""A repeated run of that many characters counts as a loop: about 16 tokens."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Tokens after the first text, and the seconds that they took."""

    tokens: float
    seconds: float

    @property
    def tps(self) -> float | None:
        return self.tokens / self.seconds if self.seconds > 0 and self.tokens > 0 else None


def decode_tps(reply: Reply) -> float | None:
    """Tokens a second after the first text; None where all text came at once."""
    if len(reply.arrivals) < 2 or reply.tokens < 2:
        return None
    span_s = reply.arrivals[-1].at_s - reply.arrivals[0].at_s
    return (reply.tokens - 1) / span_s if span_s > 0 else None


def looped(text: str, run: int = LOOP_CHARS) -> list[bool]:
    """For each character, whether it lies in a run of characters that stood in this text before."""
    seen: set[str] = set()
    marks = [False] * len(text)
    for end in range(run, len(text) + 1):
        piece = text[end - run : end]
        if piece in seen:
            marks[end - run : end] = [True] * run
        seen.add(piece)
    return marks


def looped_share(replies: Sequence[Reply]) -> float:
    """Share of all characters that lie in loops."""
    marks = [mark for reply in replies for mark in looped(reply.text)]
    return sum(marks) / len(marks) if marks else 0.0


def fresh_pace(replies: Sequence[Reply]) -> Pace:
    """Tokens outside loops, and what they took; every round's time is shared out over the text that it brought."""
    tokens = seconds = 0.0
    for reply in replies:
        marks = looped(reply.text)
        per_char = reply.tokens / max(1, len(reply.text))
        place = reply.arrivals[0].chars if reply.arrivals else 0
        for before, now in zip(reply.arrivals, reply.arrivals[1:], strict=False):
            fresh = marks[place : place + now.chars].count(False)
            tokens += fresh * per_char
            seconds += (now.at_s - before.at_s) * fresh / now.chars
            place += now.chars
    return Pace(tokens, seconds)


def aggregate_tps(replies: Sequence[Reply]) -> float | None:
    """All tokens of replies made side by side, over the time from the first request to the last text."""
    span_s = max(reply.ended_s for reply in replies) - min(reply.sent_s for reply in replies)
    return sum(reply.tokens for reply in replies) / span_s if span_s > 0 else None


def steady_tps(replies: Sequence[Reply]) -> float | None:
    """Tokens a second of all streams together while every one of them is decoding; None where they never all are."""
    if any(len(reply.arrivals) < 2 for reply in replies):
        return None
    start_s = max(reply.arrivals[0].at_s for reply in replies)
    stop_s = min(reply.arrivals[-1].at_s for reply in replies)
    if stop_s <= start_s:
        return None
    return sum(_tokens_within(reply, start_s, stop_s) for reply in replies) / (stop_s - start_s)


def _tokens_within(reply: Reply, start_s: float, stop_s: float) -> float:
    chars = sum(arrival.chars for arrival in reply.arrivals if start_s < arrival.at_s <= stop_s)
    return reply.tokens * chars / max(1, len(reply.text))


def median(values: Sequence[float | None]) -> float | None:
    """Of the values that are there."""
    found = [value for value in values if value is not None]
    return statistics.median(found) if found else None


@dataclass(frozen=True, slots=True)
class Paired:
    """Ratios of neighbouring runs: their median and quartiles."""

    ratios: tuple[float, ...]

    @property
    def median(self) -> float | None:
        return median(self.ratios)

    @property
    def quartiles(self) -> tuple[float, float] | None:
        if not self.ratios:
            return None
        if len(self.ratios) == 1:
            return self.ratios[0], self.ratios[0]
        low, _, high = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return low, high


def paired(ours: Sequence[float | None], theirs: Sequence[float | None]) -> Paired:
    """Each run of ours over the run of theirs beside it; a pair with a run that has no rate is left out."""
    return Paired(tuple(a / b for a, b in zip(ours, theirs, strict=True) if a is not None and b))
