"""Sharing rows, against the same rule written as one plain walk over all drafts."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Sequence
from itertools import accumulate
from math import inf
from typing import Any

import pytest

from tfjax.lanes.allocation import share_rows

Price = Callable[[int, int, int], float]
LANDS = (None, (0.0, 0.25, 0.5, 0.75, 1.0), (0.1, 0.9))
"""Chances are any, or of few values, so that many are equal."""


def walk(
    chances: Sequence[Sequence[float]],
    fixed_rows: int,
    most_rows: int,
    price_ms: Price,
    *,
    least_rows: int,
    held: Sequence[bool] | None,
    steps: Container[int] | None,
    margin: float,
) -> list[int]:
    """`share_rows` with a tuple for each draft: what it yields, its place and its stream."""
    nodes: list[tuple[float, int, int]] = []
    for stream, chain in enumerate(chances):
        falling = enumerate(accumulate(chain, min), start=1)
        nodes += [(-chance, place, stream) for place, chance in falling if chance > 0 or least_rows]
    nodes.sort()
    del nodes[max(0, most_rows - fixed_rows) :]
    tokens, rows, drafting, deepest = float(len(chances)), fixed_rows, 0, 0
    best_rate, best_rows = -inf, fixed_rows + len(nodes)
    for minus_chance, place, stream in (*nodes, (0.0, 0, -1)):
        costs_hold = stream >= 0 and (held is None or held[stream])
        dearer = steps is None or rows in steps or rows == fixed_rows or stream < 0
        dearer = dearer or (costs_hold and (place == 1 or place > deepest))
        if dearer and rows >= least_rows:
            rate = tokens / price_ms(rows, drafting, deepest)
            if rate > best_rate:
                best_rate, best_rows = rate, rows
        tokens -= minus_chance
        rows += 1
        if costs_hold:
            drafting += place == 1
            deepest = max(deepest, place)
    granted = [0] * len(chances)
    if margin > 1 and best_rate < margin * len(chances) / price_ms(fixed_rows, 0, 0):
        return granted
    for _, _, stream in nodes[: best_rows - fixed_rows]:
        granted[stream] += 1
    return granted


def some_round(chance: random.Random, streams: int, drafts: int) -> tuple[list[list[float]], dict[str, Any]]:
    """Drafts of some streams, and what the round is like otherwise; most chains fall, as chances of drafts do."""
    lands = chance.choice(LANDS)
    chains = [
        [chance.random() if lands is None else chance.choice(lands) for _ in range(chance.randint(0, drafts))]
        for _ in range(streams)
    ]
    if chance.random() < 0.7:
        chains = [sorted(chain, reverse=True) for chain in chains]
    held = [chance.random() < 0.5 for _ in range(streams)]
    steps = {chance.randint(1, 1 + streams * (drafts + 1)) for _ in range(6)}
    return chains, {
        "fixed_rows": streams + chance.choice([0, 0, 1, 4]),
        "most_rows": chance.choice([1 << 11, chance.randint(0, streams * (drafts + 1))]),
        "least_rows": chance.choice([0, 0, chance.randint(0, streams * drafts)]),
        "held": chance.choice([None, held, [False] * streams]),
        "steps": chance.choice([None, steps]),
        "margin": chance.choice([1.0, 1.05, 1.5]),
    }


def some_prices(chance: random.Random, most_rows: int) -> Price:
    """Any at all, flat, or rising by the row, and what a hold adds."""
    rows_ms = [chance.choice([10.0, 10.0 + 0.2 * rows, chance.uniform(1, 100)]) for rows in range(most_rows)]
    stream_ms, depth_ms = chance.choice([0.0, 1.0, 9.0]), chance.choice([0.0, 0.5, 7.0])
    return lambda rows, drafting, deepest: rows_ms[rows] + stream_ms * drafting + depth_ms * deepest


class Asked:
    """Prices that remember which widths they were asked for."""

    def __init__(self, price_ms: Price) -> None:
        self.price_ms = price_ms
        self.widths: list[tuple[int, int, int]] = []

    def __call__(self, rows: int, drafting: int, deepest: int) -> float:
        self.widths.append((rows, drafting, deepest))
        return self.price_ms(rows, drafting, deepest)


@pytest.mark.parametrize(("streams", "drafts", "rounds"), [(3, 3, 2000), (6, 5, 2000), (32, 8, 100)])
@pytest.mark.parametrize("seed", range(3))
def test_it_grants_what_the_plain_walk_grants_and_asks_for_the_same_prices(
    streams: int, drafts: int, rounds: int, seed: int
) -> None:
    chance = random.Random(seed)
    drafted = 0
    for _ in range(rounds):
        chains, rest = some_round(chance, chance.randint(0, streams), drafts)
        price_ms = some_prices(chance, streams * (drafts + 1) + 5)
        one, other = Asked(price_ms), Asked(price_ms)
        granted = share_rows(chains, price_ms=one, **rest)
        assert granted == walk(chains, price_ms=other, **rest)
        assert one.widths == other.widths
        drafted += any(granted)
    assert drafted > rounds / 4
