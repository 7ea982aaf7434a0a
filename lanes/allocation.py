"""How many drafts each stream of a round may verify."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import inf


def share_rows(
    chances: Sequence[Sequence[float]],
    fixed_rows: int,
    most_rows: int,
    price_ms: Callable[[int, int, int], float],
    *,
    least_rows: int = 0,
    held: Sequence[bool] | None = None,
) -> list[int]:
    """Drafts granted to each stream: the total width with the most expected tokens per millisecond.

    Draft rows are taken best first. All widths are looked at, not only up to the first fall; ties take fewer rows.
    That is safe because a draft is accepted by equality with a keyed draw: how many there are cannot bias the draw.

    Args:
        chances: per stream, the chance that draft k and all before it land; a rise along a stream counts as none.
        fixed_rows: rows that are in the round anyway, at least one per stream.
        most_rows: rows of the widest forward.
        price_ms: time of a round by its rows, the streams that have a held draft in it, and the most of one stream.
        least_rows: a round that measures its rows takes at least this many, or every draft there is.
        held: per stream, whether a drafter makes its drafts, which costs a hold; left out, all are such.
    """
    nodes = sorted(
        (-chance, place, stream)
        for stream, chain in enumerate(chances)
        for place, chance in enumerate(accumulate(chain, min), start=1)
    )
    del nodes[max(0, most_rows - fixed_rows) :]
    worth, drafting, deepest = float(len(chances)), 0, 0
    best_rate, best_count = -inf, len(nodes)
    if fixed_rows >= least_rows:
        best_rate, best_count = worth / price_ms(fixed_rows, 0, 0), 0
    for count, (minus_chance, place, stream) in enumerate(nodes, start=1):
        worth -= minus_chance
        if held is None or held[stream]:
            drafting += place == 1
            if place > deepest:
                deepest = place
        if fixed_rows + count < least_rows:
            continue
        rate = worth / price_ms(fixed_rows + count, drafting, deepest)
        if rate > best_rate:
            best_rate, best_count = rate, count
    granted = [0] * len(chances)
    for _, _, stream in nodes[:best_count]:
        granted[stream] += 1
    return granted
