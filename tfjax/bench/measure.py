"""Measures cells: several runs of each, and whether their tokens are those of the same requests made otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfjax.bench.rates import aggregate_tps, decode_tps, fresh_pace, looped_share, median, steady_tps
from tfjax.bench.reply import Reply, all_same, draft_counts, same_tokens
from tfjax.bench.work import Ask, Asker, Cell

Say = Callable[[str], None]


@dataclass(slots=True)
class References:
    """Each request made alone, once; with drafts as the server has them, and as the serial reference without."""

    asker: Asker
    alone: bool
    serial: bool
    _made: dict[tuple[Ask, bool], Reply] = field(default_factory=dict)

    async def of(self, ask: Ask, *, draft: bool) -> Reply | None:
        """None where this reference was not asked for."""
        if not (self.alone if draft else self.serial):
            return None
        if (ask, draft) not in self._made:
            self._made[ask, draft] = await self.asker.one(ask, draft=draft)
        return self._made[ask, draft]


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of one cell.

    Attributes:
        runs: one list of replies per repetition, in the order of the cell's asks.
        alone, serial: the same requests one at a time; None where they were not made.
    """

    cell: Cell
    runs: tuple[tuple[Reply, ...], ...]
    alone: tuple[Reply, ...] | None
    serial: tuple[Reply, ...] | None

    @property
    def equal(self) -> dict[str, bool | None]:
        """Whether token hashes are equal between repetitions, to those alone, and to the serial ones."""
        return {
            "repeated": self._equal_to(self.runs[0]) if len(self.runs) > 1 else None,
            "alone": self._equal_to(self.alone),
            "serial": self._equal_to(self.serial),
        }

    def _equal_to(self, others: Sequence[Reply] | None) -> bool | None:
        if others is None:
            return None
        return all_same(same_tokens(a, b) for run in self.runs for a, b in zip(run, others, strict=True))

    @property
    def summary(self) -> dict[str, Any]:
        """Medians over repetitions. Rates are tokens a second, `fresh` leaves loops out."""
        replies = [reply for run in self.runs for reply in run]
        return {
            "stream_tps": rounded(median([decode_tps(reply) for reply in replies])),
            "stream_tps_fresh": rounded(fresh_pace(replies).tps),
            "aggregate_tps": rounded(median([aggregate_tps(run) for run in self.runs])),
            "steady_tps": rounded(median([steady_tps(run) for run in self.runs])),
            "ttft_ms": rounded(median([reply.ttft_ms for reply in replies])),
            "worst_ttft_ms": rounded(max(reply.ttft_ms for reply in replies)),
            "looped_share": rounded(looped_share(self.runs[0]), 3),
        }

    def as_dict(self) -> dict[str, Any]:
        replies = [reply for run in self.runs for reply in run]
        return {
            **self.cell.as_dict(),
            **self.summary,
            "equal": self.equal,
            "drafts": draft_counts(replies).as_dict(),
            "runs": [
                [reply_facts(ask, reply) for ask, reply in zip(self.cell.asks, run, strict=True)] for run in self.runs
            ],
            **{
                name: [reply_facts(ask, reply) for ask, reply in zip(self.cell.asks, made, strict=True)]
                for name, made in (("alone", self.alone), ("serial", self.serial))
                if made is not None
            },
        }


async def measure(
    asker: Asker, cell: Cell, *, reps: int, stagger_s: float, references: References, say: Say
) -> Measured:
    """One cell: every repetition, then the references."""
    runs = []
    for rep in range(reps):
        say(f"{cell}: run {rep + 1} of {reps}")
        runs.append(tuple(await asker.together(cell.asks, stagger_s=stagger_s)))
    say(f"{cell}: alone and serial" if references.alone or references.serial else f"{cell}: done")
    alone = [await references.of(ask, draft=True) for ask in cell.asks]
    serial = [await references.of(ask, draft=False) for ask in cell.asks]
    return Measured(cell, tuple(runs), _whole(alone), _whole(serial))


def _whole(replies: Sequence[Reply | None]) -> tuple[Reply, ...] | None:
    found = tuple(reply for reply in replies if reply is not None)
    return found if len(found) == len(replies) else None


def reply_facts(ask: Ask, reply: Reply) -> dict[str, Any]:
    """One reply in a report; no text of it."""
    return {
        "kind": ask.kind,
        "prompt": ask.index,
        "temperature": ask.temperature,
        "seed": ask.seed,
        "tokens": reply.tokens,
        "prompt_tokens": reply.prompt_tokens,
        "cached_tokens": reply.cached_tokens,
        "finish_reason": reply.finish_reason,
        "ttft_ms": rounded(reply.ttft_ms),
        "decode_tps": rounded(decode_tps(reply)),
        "token_sha256": reply.token_sha256,
        "server": {key: value for key, value in reply.block.items() if key not in ("token_sha256", "seed")},
    }


def rounded(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)
