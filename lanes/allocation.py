"""How many drafts each stream of a round may verify."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import accumulate, chain, zip_longest
from math import inf
from operator import ge, neg


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
    streams = len(chances)
    by_place = _by_place(chances)
    # Sorting is stable: of equal chances the first places go first, and at one place the first streams.
    drafts = sorted(range(len(by_place)), key=by_place.__getitem__, reverse=True)
    worth = [by_place[draft] for draft in drafts]
    usable = bisect_left(worth, -(NO_DRAFT if least_rows else 0.0), key=neg)
    del drafts[min(usable, max(0, most_rows - fixed_rows)) :]
    tokens = list(accumulate(worth, initial=float(streams)))
    best_rate, best = -inf, len(drafts)
    for rows, drafting, deepest in _looks(drafts, streams, fixed_rows, held or [True] * streams, steps):
        if rows >= least_rows:
            rate = tokens[rows - fixed_rows] / price_ms(rows, drafting, deepest)
            if rate > best_rate:
                best_rate, best = rate, rows - fixed_rows
    granted = [0] * streams
    if margin > 1 and best_rate < margin * streams / price_ms(fixed_rows, 0, 0):
        return granted
    for draft in drafts[:best]:
        granted[draft % streams] += 1
    return granted


NO_DRAFT = -1.0
"""Stands where a stream has fewer drafts than others: less likely than any draft."""


def _by_place(chances: Sequence[Sequence[float]]) -> list[float]:
    """The chances of the first draft of every stream, then of every second one, and so on; none rises along a stream.

    So the draft at number n is one of stream n % streams, and stands at place n // streams, from 0 on.
    """
    found = list(chain.from_iterable(zip_longest(*chances, fillvalue=NO_DRAFT)))
    if all(map(ge, found, found[len(chances) :])):
        return found
    return _by_place([list(accumulate(rising, min)) for rising in chances])


def _looks(
    drafts: Sequence[int], streams: int, fixed_rows: int, held: Sequence[bool], steps: Container[int] | None
) -> Iterator[tuple[int, int, int]]:
    """The widths after which a round gets dearer, and the widest one.

    Each as its rows, the streams that have a held one, and the most held ones of one stream.
    """
    drafting = deepest = deeper_from = 0
    any_held = any(held)
    for rows, draft in enumerate(drafts, start=fixed_rows):
        costs_hold = any_held and (draft < streams or draft >= deeper_from) and held[draft % streams]
        if costs_hold or steps is None or rows in steps or rows == fixed_rows:
            yield rows, drafting, deepest
        if costs_hold:
            drafting += draft < streams
            deepest = max(deepest, draft // streams + 1)
            deeper_from = streams * deepest
    yield fixed_rows + len(drafts), drafting, deepest
