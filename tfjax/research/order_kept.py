"""Drafts that a drafter keeps in both orders of norm and rotation, reply by reply, and what follows from them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BEFORE, AFTER = ORDERS = ("before_rope", "after_rope")

SURE = 2.0
"""Standard errors by which an order has to be ahead."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Of one reply.

    Attributes:
        rounds: those that verified drafts.
        drafts: those that landed.
    """

    rounds: int
    drafts: int


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over replies and its standard error, which is not a number for fewer than two."""

    value: float
    error: float


@dataclass(frozen=True, slots=True)
class Compared:
    """Drafts kept in a round in both orders, each reply counted once.

    Attributes:
        difference: of the same reply, before RoPE less after RoPE.
        replies: those that had drafts in both orders.
        rounds: all of theirs that verified drafts.
    """

    before: Mean
    after: Mean
    difference: Mean
    replies: int
    rounds: int

    @property
    def ahead(self) -> str | None:
        """The order that keeps more, if the difference is beyond what chance would show."""
        if not abs(self.difference.value) > SURE * self.difference.error:
            return None
        return BEFORE if self.difference.value > 0 else AFTER

    @property
    def lost(self) -> float:
        """Share of the better order's drafts that the other one loses."""
        best = max(self.before.value, self.after.value)
        return abs(self.difference.value) / best if best else 0.0


def compare(before: Sequence[Kept], after: Sequence[Kept]) -> Compared:
    """Compare replies to the same prompts. One without drafts in either order is left out."""
    pairs = [(one, other) for one, other in zip(before, after, strict=True) if one.rounds and other.rounds]
    first = [one.drafts / one.rounds for one, _ in pairs]
    second = [other.drafts / other.rounds for _, other in pairs]
    return Compared(
        _mean(first),
        _mean(second),
        _mean([one - other for one, other in zip(first, second, strict=True)]),
        len(pairs),
        sum(one.rounds + other.rounds for one, other in pairs),
    )


def _mean(values: Sequence[float]) -> Mean:
    if len(values) < 2:
        return Mean(values[0] if values else math.nan, math.nan)
    return Mean(statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values)))


def table(compared: Mapping[str, Compared]) -> str:
    """A line for each way of sampling."""
    title = "drafts kept in a round"
    width = max(map(len, (title, *compared)))
    heads = "".join(f"{head:>17}" for head in (BEFORE, AFTER, "difference"))
    lines = [f"{title:{width}}  {heads}{'replies':>10}{'rounds':>8}"]
    for name, found in compared.items():
        cells = [f"{mean.value:.3f} ± {mean.error:.3f}" for mean in (found.before, found.after)]
        cells.append(f"{found.difference.value:+.3f} ± {found.difference.error:.3f}")
        row = "".join(f"{cell:>17}" for cell in cells)
        lines.append(f"{name:{width}}  {row}{found.replies:>10}{found.rounds:>8}")
    return "\n".join(lines)


def conclusion(compared: Mapping[str, Compared], stated: str) -> str:
    """What to do, in one line. `stated` is the order that the drafter's config leads to."""
    if min(found.replies for found in compared.values()) < 2:
        return "Too few replies had drafts to tell the orders apart; give more prompts or more --tokens."
    sure = {name: found for name, found in compared.items() if found.ahead}
    orders = {found.ahead for found in sure.values()}
    if len(orders) != 1:
        what = "one order is ahead greedy, the other sampled" if orders else "neither order is ahead beyond its error"
        return f"Undecided: {what}; leave what the config says ({stated}), or give more prompts."
    order = next(iter(orders))
    lost = ", ".join(f"{found.lost:.1%} {name}" for name, found in sure.items())
    how = "which is what the config says" if order == stated else f"serve with --drafter-qk-norm {order}"
    return f"{order} keeps more drafts, {how}; the other order loses {lost}."
