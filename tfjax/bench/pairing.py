"""Two sides measured turn by turn, and what one gains over the other in each cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfjax.bench.measure import reply_facts, rounded
from tfjax.bench.rates import Paired, aggregate_tps, fresh_pace, looped_share, median, paired
from tfjax.bench.reply import Reply, all_same, draft_counts, same_tokens
from tfjax.bench.work import Asker, Cell


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two. `draft` False asks for the serial reference."""

    name: str
    asker: Asker
    draft: bool = True


@dataclass(slots=True)
class Pair:
    """All runs of one cell: `ours[i]` and `theirs[i]` were made one after the other."""

    cell: Cell
    ours: list[list[Reply]] = field(default_factory=list)
    theirs: list[list[Reply]] = field(default_factory=list)

    @property
    def ratio(self) -> Paired:
        """Of the rates of fresh text, ours over theirs, run by run."""
        return paired(*([fresh_pace(run).tps for run in runs] for runs in (self.ours, self.theirs)))

    @property
    def equal(self) -> bool | None:
        """Whether every reply of either side has the tokens of the first one of its request."""
        runs = [*self.ours, *self.theirs]
        return all_same(same_tokens(a, b) for run in runs[1:] for a, b in zip(run, runs[0], strict=True))

    def loses(self, least: float) -> bool:
        """Whether ours is slower than `least` times theirs, or no rate could be measured."""
        middle = self.ratio.median
        return middle is None or middle < least

    def rates(self, runs: Sequence[Sequence[Reply]]) -> dict[str, float | None]:
        """Medians over runs of one side, tokens a second."""
        return {
            "stream_tps_fresh": rounded(median([fresh_pace(run).tps for run in runs])),
            "aggregate_tps": rounded(median([aggregate_tps(run) for run in runs])),
            "worst_ttft_ms": rounded(max(reply.ttft_ms for run in runs for reply in run)),
        }

    def as_dict(self, names: tuple[str, str], least: float) -> dict[str, Any]:
        quartiles = self.ratio.quartiles
        sides = dict(zip(names, (self.ours, self.theirs), strict=True))
        return {
            **self.cell.as_dict(),
            "ratio": rounded(self.ratio.median, 4),
            "quartiles": None if quartiles is None else [round(value, 4) for value in quartiles],
            "ratios": [round(value, 4) for value in self.ratio.ratios],
            "loses": self.loses(least),
            "equal": self.equal,
            "looped_share": rounded(looped_share(self.ours[0]), 3),
            "drafts": draft_counts([reply for run in self.ours for reply in run]).as_dict(),
            "sides": {
                name: {
                    **self.rates(runs),
                    "runs": [
                        [reply_facts(ask, reply) for ask, reply in zip(self.cell.asks, run, strict=True)]
                        for run in runs
                    ],
                }
                for name, runs in sides.items()
            },
        }


async def compare(
    cells: Sequence[Cell], ours: Side, theirs: Side, *, reps: int, say: Callable[[str], None]
) -> list[Pair]:
    """Runs every cell on both sides, one right after the other. Which side and which cell goes first changes."""
    pairs = [Pair(cell) for cell in cells]
    for rep in range(reps):
        for step in range(len(pairs)):
            place = (step + rep) % len(pairs)
            pair = pairs[place]
            turns = [(ours, pair.ours), (theirs, pair.theirs)]
            for side, runs in turns if (rep + place) % 2 == 0 else reversed(turns):
                runs.append(await side.asker.together(pair.cell.asks, draft=side.draft))
            done = rep * len(pairs) + step + 1
            say(f"{done} of {reps * len(pairs)}: {pair.cell}: {_last(pair, ours.name, theirs.name)}")
    return pairs


def _last(pair: Pair, ours: str, theirs: str) -> str:
    one, other = fresh_pace(pair.ours[-1]).tps, fresh_pace(pair.theirs[-1]).tps
    if one is None or other is None:
        return "too short to tell a rate"
    words = {True: "", None: ", no hash to compare", False: ", TOKENS DIFFER"}[pair.equal]
    return f"{one / other:.2f}x ({ours} {one:.1f}, {theirs} {other:.1f} tokens/s){words}"


def mean_ratio(pairs: Sequence[Pair]) -> float | None:
    """The mean of the cells' medians."""
    found = [pair.ratio.median for pair in pairs]
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known else None
