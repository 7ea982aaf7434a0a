"""The replies that a bench asks for: which they are, and how they are asked for, alone or side by side."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfjax.bench.client import Client
from tfjax.bench.reply import Reply
from tfjax.bench.suite import prompt_of


@dataclass(frozen=True, slots=True)
class Ask:
    """One reply: equal asks have equal tokens, whenever and beside whatever they are made."""

    kind: str
    index: int
    temperature: float
    seed: int

    def __str__(self) -> str:
        return f"{self.kind} {self.index} T={self.temperature:g}"


@dataclass(frozen=True, slots=True)
class Asker:
    """How replies are asked for.

    Attributes:
        fresh_prompts: no prompt is taken from an earlier request's cache, so that every first token takes its whole
            time. Sent to tfjax only; others may not know the field.
    """

    client: Client
    model: str
    tokens: int
    stop_at_eos: bool
    fresh_prompts: bool

    async def one(self, ask: Ask, *, draft: bool = True, tokens: int | None = None) -> Reply:
        """One reply."""
        prompt = prompt_of(ask.kind, ask.index)
        fields: dict[str, Any] = {
            **prompt.fields,
            "model": self.model,
            "max_tokens": tokens or self.tokens,
            "temperature": ask.temperature,
            "seed": ask.seed,
        }
        if not self.stop_at_eos:
            fields["ignore_eos"] = True
        if self.fresh_prompts:
            fields["cache_salt"] = secrets.token_hex(8)
        if not draft:
            fields["draft"] = False
        return await self.client.ask(prompt.route, fields)

    async def together(self, asks: Sequence[Ask], *, draft: bool = True, stagger_s: float = 0.0) -> list[Reply]:
        """Replies made side by side, each started `stagger_s` after the one before. One that fails ends all."""

        async def later(place: int, ask: Ask) -> Reply:
            await asyncio.sleep(place * stagger_s)
            return await self.one(ask, draft=draft)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(later(place, ask)) for place, ask in enumerate(asks)]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: so many streams of one kind at one temperature, or of all kinds and temperatures mixed."""

    kind: str
    temperature: float | None
    streams: int
    asks: tuple[Ask, ...]

    def __str__(self) -> str:
        words = "" if self.temperature is None else f" T={self.temperature:g}"
        return f"{self.kind}{words} x{self.streams}"

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "temperature": self.temperature, "streams": self.streams}


def make_cells(
    kinds: Sequence[str], temperatures: Sequence[float], levels: Sequence[int], seed: int, *, mixed: bool = False
) -> list[Cell]:
    """Every kind at every temperature and level; `mixed` adds one cell of all kinds for each level above one."""
    cells = [
        Cell(kind, temperature, streams, tuple(Ask(kind, i, temperature, seed + i) for i in range(streams)))
        for temperature in temperatures
        for kind in kinds
        for streams in levels
    ]
    if mixed:
        cells += [
            Cell("mixed", None, streams, _mixed(kinds, temperatures, streams, seed))
            for streams in levels
            if streams > 1
        ]
    return cells


def _mixed(kinds: Sequence[str], temperatures: Sequence[float], streams: int, seed: int) -> tuple[Ask, ...]:
    return tuple(
        Ask(kinds[i % len(kinds)], i, temperatures[(i // len(kinds) + i) % len(temperatures)], seed + i)
        for i in range(streams)
    )


async def warm_up(asker: Asker, asks: Sequence[Ask], times: int) -> None:
    """Untimed short replies, so that the first timed one is like the others."""
    for _ in range(times):
        for ask in asks:
            await asker.one(ask, tokens=8)
