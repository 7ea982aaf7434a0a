from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.bench.test_rates import reply
from tfjax.bench.pairing import Pair, Side, compare, mean_ratio
from tfjax.bench.reply import Reply
from tfjax.bench.work import Ask, Cell, make_cells


def lasting(seconds: float, digest: str = "a") -> Reply:
    made = reply((0.0, "x"), (seconds, "yz"))
    return Reply(made.sent_s, made.ended_s, made.arrivals, made.text, 3, block={"token_sha256": digest})


def pair(ours: list[Reply], theirs: list[Reply]) -> Pair:
    cell = Cell("code", 0.0, 1, (Ask("code", 0, 0.0, 0),))
    return Pair(cell, [[made] for made in ours], [[made] for made in theirs])


def test_the_ratio_is_of_neighbours() -> None:
    """A machine that becomes slow for both sides at once does not change it."""
    made = pair([lasting(1), lasting(10)], [lasting(2), lasting(20)])
    assert made.ratio.ratios == (2.0, 2.0)
    assert not made.loses(0.98)


def test_losing() -> None:
    made = pair([lasting(1.0)], [lasting(0.97)])
    assert made.loses(0.98)
    assert not made.loses(0.96)
    assert pair([reply((0, "a"))], [lasting(1)]).loses(0.98), "no rate is no gain"


@pytest.mark.parametrize(
    ("ours", "theirs", "equal"),
    [("aa", "aa", True), ("ab", "aa", False), ("aa", "ab", False), ("bb", "aa", False), (("a", ""), "aa", None)],
)
def test_equal(ours: str, theirs: str, equal: bool | None) -> None:
    assert pair([lasting(1, d) for d in ours], [lasting(1, d) for d in theirs]).equal is equal


def test_mean_ratio() -> None:
    pairs = [pair([lasting(1)], [lasting(2)]), pair([lasting(1)], [lasting(1)]), pair([reply((0, "a"))], [lasting(1)])]
    assert mean_ratio(pairs) == 1.5
    assert mean_ratio(pairs[2:]) is None


class RecordingAsker:
    def __init__(self, name: str, log: list[Any]) -> None:
        self.name, self.log = name, log

    async def together(self, asks: Any, *, draft: bool) -> list[Reply]:
        self.log.append((self.name, asks[0].kind, draft))
        return [lasting(1) for _ in asks]


def test_turns_alternate_and_cells_rotate() -> None:
    log: list[Any] = []
    said: list[str] = []
    ours: Any = RecordingAsker("A", log)
    theirs: Any = RecordingAsker("B", log)
    cells = make_cells(["code", "chat"], [0.0], [1], 0)
    pairs = asyncio.run(compare(cells, Side("A", ours), Side("B", theirs, draft=False), reps=2, say=said.append))
    assert log == [
        ("A", "code", True), ("B", "code", False), ("B", "chat", False), ("A", "chat", True),
        ("A", "chat", True), ("B", "chat", False), ("B", "code", False), ("A", "code", True),
    ]  # fmt: skip
    assert [(len(one.ours), len(one.theirs)) for one in pairs] == [(2, 2), (2, 2)]
    assert said[0] == "1 of 4: code T=0 x1: 1.00x (A 2.0, B 2.0 tokens/s)"


def test_cells() -> None:
    cells = make_cells(["code", "chat"], [0.0, 1.0], [1, 8], 5, mixed=True)
    assert len(cells) == 2 * 2 * 2 + 1
    assert [ask.seed for ask in cells[1].asks] == list(range(5, 13))
    assert [ask.index for ask in cells[1].asks] == list(range(8))
    mixed = cells[-1]
    assert (mixed.kind, mixed.temperature, mixed.streams) == ("mixed", None, 8)
    assert {(ask.kind, ask.temperature) for ask in mixed.asks} == {(k, t) for k in ("code", "chat") for t in (0.0, 1.0)}
    assert set(cells[1].asks) > set(cells[0].asks), "what was made alone once serves all levels"
