"""Streams as the loop has them between rounds, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.scripted_drafter import ScriptedDrafter
from tests.stubs import ScriptedBackend
from tfjax.lanes.drafting import Drafting
from tfjax.lanes.memory import Memory
from tfjax.lanes.pages import PagePool
from tfjax.lanes.prices import Prices
from tfjax.lanes.proposer import NOTHING, Proposal
from tfjax.lanes.room import Room
from tfjax.lanes.stream import Request, Stream, Times

WIDTHS = (2, 4, 8, 16, 32)


def stream_of(
    name: str = "r",
    chances: Sequence[float] = (),
    offer: Proposal | None = NOTHING,
    forced: Sequence[int] = (),
    emitted: int = 2,
    max_new: int = 100,
    most: int = 8,
) -> Stream:
    """A decoding stream whose last token is pending; `chances` are of drafts that lie with the drafter."""
    stream = Stream(Request(name, (1, 2, 3), max_new), 3 + max_new, Times(0.0))
    stream.context += [4] * emitted
    stream.cache_length = len(stream.context) - 1
    stream.pages = list(range(40))
    stream.forced.extend(forced)
    stream.offer = offer
    stream.drafting = Drafting(most)
    stream.drafting.chances = tuple(chances)
    return stream


def copy_of(count: int, match: int = 12) -> Proposal:
    return Proposal(tuple(range(count)), tuple(0.94 ** (place + 1) for place in range(count)), match)


def room_of(most_drafts: int = 31) -> Room:
    return Room(Memory(PagePool(200, 4), 8), most_drafts)


def prices_of(table: Mapping[int, float], overhead_ms: float = 0.0, hold_ms: Any = None) -> Prices:
    """Prices that saw one plain round of one stream, so that the overhead is known."""
    prices = Prices(tuple(table), table, hold_ms or {})
    if table:
        prices.observe(1, 1, table[min(table)] + overhead_ms)
    return prices


def drafter_of(**options: Any) -> ScriptedDrafter:
    return ScriptedDrafter(ScriptedBackend(), **options)
