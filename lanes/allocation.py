"""How many drafts each stream of a round may verify."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def share_rows(
    chances: Sequence[Sequence[float]], fixed_rows: int, most_rows: int, price_ms: Callable[[int], float]
) -> list[int]:
    """Drafts granted to each stream: the total width with the most expected tokens per millisecond.

    Draft rows are taken best first. All widths are looked at, not only up to the first fall; ties take fewer rows.
    That is safe because a draft is accepted by equality with a keyed draw: how many there are cannot bias the draw.

    Args:
        chances: per stream, the chance that draft k and all before it land; never rising along a stream.
        fixed_rows: rows that are in the round anyway, at least one per stream.
        most_rows: rows of the widest forward.
        price_ms: time of a round by its number of rows.
    """
    nodes = sorted(
        (-chance, place, stream) for stream, chain in enumerate(chances) for place, chance in enumerate(chain)
    )
    del nodes[max(0, most_rows - fixed_rows) :]
    worth = float(len(chances))
    best_rate, best_count = worth / price_ms(fixed_rows), 0
    for count, (minus_chance, _, _) in enumerate(nodes, start=1):
        worth -= minus_chance
        rate = worth / price_ms(fixed_rows + count)
        if rate > best_rate:
            best_rate, best_count = rate, count
    granted = [0] * len(chances)
    for _, _, stream in nodes[:best_count]:
        granted[stream] += 1
    return granted
