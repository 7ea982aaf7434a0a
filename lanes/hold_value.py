"""What a round yields in which the drafter serves some streams: two ways to reckon it before its drafts are known."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from math import ceil

from tfjax.lanes.allocation import share_rows
from tfjax.lanes.sureness import Node

Price = Callable[[int, int, int], float]
LEAST_OFTEN, SLACK = 0.02, 1e-6


@dataclass(frozen=True, slots=True)
class Share:
    """Drafts of each stream, and the tokens and milliseconds expected of a round with them."""

    granted: Sequence[int]
    tokens: float
    ms: float


def unweighed(
    chains: Sequence[Sequence[float]],
    held: Sequence[bool],
    fixed_rows: int,
    most_rows: int,
    price_ms: Price,
    steps: Container[int] | None,
) -> Share:
    """The best allocation where all that is drafted is verified. Arguments as of `share_rows`."""
    if not any(chains):
        return Share([0] * len(chains), len(chains), price_ms(fixed_rows, 0, 0))
    granted = share_rows(chains, fixed_rows, most_rows, price_ms, held=held, steps=steps)
    depths = [count for count, by_drafter in zip(granted, held, strict=True) if by_drafter and count]
    tokens = len(chains) + sum(sum(chain[:count]) for chain, count in zip(chains, granted, strict=True))
    return Share(granted, tokens, price_ms(fixed_rows + sum(granted), len(depths), max(depths, default=0)))


def weighed(
    nodes: Sequence[Sequence[Node]],
    held: Sequence[bool],
    fixed_rows: int,
    most_rows: int,
    price_ms: Price,
    steps: Container[int] | None,
) -> Share:
    """The best allocation where drafts that turn out unlikely cost no rows, by the rows that are left on average."""
    queue: list[tuple[float, int, int, float]] = []
    for stream, chain in enumerate(nodes):
        least = 1.0
        for place, (often, tokens) in enumerate(chain, start=1):
            if often < LEAST_OFTEN:
                break
            least = min(least, tokens / often)
            queue.append((-least, place, stream, often))
    queue.sort()
    tokens, rows, whole, drafting, deepest = float(len(nodes)), float(fixed_rows), fixed_rows, 0, 0
    best_tokens, best_ms, best = tokens, price_ms(fixed_rows, 0, 0), 0
    for taken, (minus_chance, place, stream, often) in enumerate((*queue, _END)):
        rows += often
        next_whole = ceil(rows - SLACK)
        costs_hold = held[stream] and (place == 1 or place > deepest)
        if costs_hold or (next_whole > whole and (steps is None or whole in steps)) or not place:
            ms = price_ms(whole, drafting, deepest)
            if tokens * best_ms > best_tokens * ms:
                best_tokens, best_ms, best = tokens, ms, taken
        if next_whole > most_rows:
            break
        whole = next_whole
        tokens -= often * minus_chance
        if costs_hold:
            drafting += place == 1
            deepest = max(deepest, place)
    granted = [0] * len(nodes)
    for _, _, stream, _ in queue[:best]:
        granted[stream] += 1
    return Share(granted, best_tokens, best_ms)


def certain(chain: Sequence[float]) -> list[Node]:
    """Drafts that are verified in any case."""
    return [(1.0, chance) for chance in chain]


_END = (0.0, 0, -1, 0.0)
"""After the last draft, so that all of them together are looked at too."""
