"""Drafted replies beside the serial ones, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfjax.bench.reply import DraftCounts, Reply, draft_counts, same_tokens
from tfjax.bench.work import Ask, Asker

AROUND = 24
SEED_STRIDE = 1000


@dataclass(slots=True)
class Row:
    """The replies of one kind and temperature made in one way."""

    name: str
    replies: list[Reply] = field(default_factory=list)
    equal: int = 0

    @property
    def made(self) -> int:
        return len(self.replies)

    @property
    def counts(self) -> DraftCounts:
        return draft_counts(self.replies)

    def line(self) -> tuple[object, ...]:
        counts, tokens = self.counts, sum(reply.tokens for reply in self.replies)
        return self.name, self.made, self.equal, tokens, counts.drafted, counts.kept, counts.rejected, counts.proves

    def by_depth(self) -> str:
        """drafted/kept/rejected of each depth, first draft first."""
        counts = self.counts
        if not counts.drafted:
            return "nothing drafted"
        if not counts.drafted_by_depth:
            return f"not told; kept {list(counts.kept_by_depth)}" if counts.kept_by_depth else "not told"
        kept = (*counts.kept_by_depth, *[0] * len(counts.drafted_by_depth))
        return " ".join(
            f"{drafted}/{kept[depth]}/{drafted - kept[depth]}" for depth, drafted in enumerate(counts.drafted_by_depth)
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "replies": self.name,
            "made": self.made,
            "equal": self.equal,
            "tokens": sum(reply.tokens for reply in self.replies),
            **self.counts.as_dict(),
        }


@dataclass(slots=True)
class Comparison:
    """Makes replies in every way and keeps count.

    Attributes:
        streams: drafted replies made at once, besides alone.
        differences: a line for each reply that was not equal.
        unknown: replies that could not be compared.
    """

    asker: Asker
    streams: int
    differences: list[str] = field(default_factory=list)
    unknown: int = 0
    _rows: dict[tuple[str, float, str], Row] = field(default_factory=dict)

    async def add(self, asks: Sequence[Ask], say: Callable[[str], None]) -> None:
        """Replies of some requests: serial, drafted alone, drafted side by side."""
        say(f"{asks[0]} and {len(asks) - 1} more: serial, alone, {self.streams} at once")
        serial = [await self.asker.one(ask, draft=False) for ask in asks]
        self._compare("alone", asks, [await self.asker.one(ask) for ask in asks], serial)
        for first in range(0, len(asks) if self.streams > 1 else 0, self.streams):
            part = slice(first, first + self.streams)
            self._compare(f"{self.streams} at once", asks[part], await self.asker.together(asks[part]), serial[part])

    def rows(self) -> list[Row]:
        """In order of kind, temperature and way."""
        return [self._rows[key] for key in sorted(self._rows)]

    def _compare(self, way: str, asks: Sequence[Ask], made: Sequence[Reply], serial: Sequence[Reply]) -> None:
        for ask, reply, reference in zip(asks, made, serial, strict=True):
            row = self._rows.setdefault(
                (ask.kind, ask.temperature, way), Row(f"{ask.kind} T={ask.temperature:g}, {way}")
            )
            row.replies.append(reply)
            same = same_tokens(reply, reference)
            row.equal += same is True
            self.unknown += same is None
            if same is False:
                self.differences.append(f"{ask} seed {ask.seed}, {way}: {first_difference(reference.text, reply.text)}")


def batches(
    kinds: Sequence[str], prompts: int, temperatures: Sequence[float], seed: int, rep: int
) -> Iterator[list[Ask]]:
    """The requests of one repetition, one list per temperature. Greedy ones have nothing new after the first."""
    for temperature in temperatures:
        if rep == 0 or temperature > 0:
            yield [
                Ask(kinds[i % len(kinds)], i // len(kinds), temperature, seed + SEED_STRIDE * rep + i)
                for i in range(prompts)
            ]


def first_difference(serial: str, drafted: str) -> str:
    """Where two texts part, with what stands there."""
    if serial == drafted:
        return "the tokens differ, the texts do not"
    place = next(
        (i for i, (a, b) in enumerate(zip(serial, drafted, strict=False)) if a != b), min(len(serial), len(drafted))
    )
    before = max(0, place - AROUND)
    return (
        f"first difference at character {place}: serial {serial[before : place + AROUND]!r}, "
        f"drafted {drafted[before : place + AROUND]!r}"
    )
