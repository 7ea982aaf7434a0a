"""How many drafts each stream of a round may verify."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
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
    steps: Container[int] | None = None,
    margin: float = 1.0,
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
        steps: the only rows after which a forward with drafts gets dearer, so that widths between need no look; left
            out, any.
        margin: how many times the tokens per millisecond of no drafts at all the best width must have; 1 asks nothing.
    """
    nodes: list[tuple[float, int, int]] = []
    for stream, chain in enumerate(chances):
        falling = enumerate(accumulate(chain, min), start=1)
        nodes += [(-chance, place, stream) for place, chance in falling if chance > 0 or least_rows]
    nodes.sort()
    del nodes[max(0, most_rows - fixed_rows) :]
    tokens, rows, drafting, deepest = float(len(chances)), fixed_rows, 0, 0
    best_rate, best_rows = -inf, fixed_rows + len(nodes)
    for minus_chance, place, stream in (*nodes, _END):
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
            if place > deepest:
                deepest = place
    granted = [0] * len(chances)
    if margin > 1 and best_rate < margin * len(chances) / price_ms(fixed_rows, 0, 0):
        return granted
    for _, _, stream in nodes[: best_rows - fixed_rows]:
        granted[stream] += 1
    return granted


_END = (0.0, 0, -1)
"""After the last draft, so that the widest round is looked at too."""
