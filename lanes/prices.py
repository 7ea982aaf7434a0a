"""What a round costs, in milliseconds."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial

from tfjax.lanes.holds import UNPRICED, HoldGrid, Holds

FIRST_OVERHEAD_MS = 8.0
FIRST_OVERHEAD_SHARE = 0.35
RATE = 0.2
PLAIN_WITHIN = 3
LEARNING_ROUNDS = 8
LEARNING_EVERY = 32
LEARNING_DRAFTS = 2
FADE = 0.99
FIRST_WAIT_SHARE = 0.25
MOST_TIMES = 4.0


class Prices:
    """Price of a round = its overhead on the host + the time of its forward + that of the hold that made its drafts.

    A forward takes the measured time of the width that its rows pad to, and where rows are learned also what each
    row beyond one per stream was seen to add. That may be negative, so none is priced below that of its streams alone.
    Where holds are priced and rows are not learned, rounds with drafts add what they were seen to take beyond all that:
    contexts, sampling and busy processors make many streams' drafts dearer than tables that were measured at rest. Each
    plain round lets that fade by a hundredth, so that drafts are tried again.

    Where rounds can be queued before the one in flight is read, all this is the time of such a round, which the device
    begins at once. What others take beyond it while the device waits for the host is learned apart.

    Attributes:
        hold: prices of the drafter.
    """

    def __init__(
        self,
        widths: Sequence[int],
        window_ms: Mapping[int, float],
        hold_ms: HoldGrid = UNPRICED,
        *,
        learn_rows: bool = False,
        measure_width: bool = False,
    ) -> None:
        """Take the backend's table, which may be filled later: nothing can be priced before.

        `learn_rows` learns what rows add to the table. Either flag makes some rounds wide enough to see it.
        """
        self.hold = Holds(hold_ms)
        self._widths = tuple(widths)
        self._steps = frozenset(self._widths)
        self._width_of = [self._widths[bisect_left(self._widths, rows)] for rows in range(self._widths[-1] + 1)]
        self._window_ms = window_ms
        self._learns_rows = learn_rows
        self._measures = learn_rows or measure_width
        self._overhead_ms: dict[int, float] = {}
        self._row_ms: float | None = None
        self._surplus_ms: dict[int, float] = {}
        self._wait_ms: dict[int, float] = {}
        self._ahead: set[int] = set()
        self._rounds: Counter[int] = Counter()
        self._drafted: Counter[int] = Counter()

    @property
    def known(self) -> bool:
        return self._steps <= self._window_ms.keys()

    def forward_ms(self, rows: int, streams: int | None = None) -> float:
        """Time of a forward by its rows; with the number of its streams also what was learned about rows."""
        table_ms = self._table_ms(rows)
        if streams is None or self._row_ms is None:
            return table_ms
        return max(table_ms + self._row_ms * (rows - streams), self._table_ms(streams))

    def overhead_ms(self, streams: int) -> float:
        """What rounds of this many streams took beyond their forward; that of the nearest number seen.

        Before any was seen it is taken to be much, so that drafts look cheap and are tried, but only a share of the
        forward: where that is short, so is what the host does beside it.
        """
        if not self._overhead_ms:
            return min(FIRST_OVERHEAD_MS, FIRST_OVERHEAD_SHARE * self._table_ms(streams))
        nearest = min(self._overhead_ms, key=lambda seen: abs(seen - streams))
        return self._overhead_ms[nearest]

    def of_round(self, streams: int) -> Callable[[int, int, int], float]:
        """Milliseconds of a round of this many streams, by its rows, the streams that draft, and the most drafts."""
        overhead_ms = self.overhead_ms(streams)
        forward_ms = self._table_ms if self._row_ms is None else partial(self.forward_ms, streams=streams)
        if not self.hold.priced:
            return lambda rows, _drafting, _deepest: overhead_ms + forward_ms(rows)
        hold_ms = self.hold.table()
        drafted_ms = overhead_ms + max(0.0, self._surplus_ms.get(streams, 0.0))
        return lambda rows, drafting, deepest: (
            (drafted_ms if rows > streams else overhead_ms) + forward_ms(rows) + hold_ms(drafting, deepest)
        )

    def wait_ms(self, streams: int) -> float:
        """What a round of this many streams takes more where it waits for the one before it to be read.

        Before any was seen beside plain ones that did not, it is a share of a plain round; after that what the nearest
        number of streams took.
        """
        if not self._wait_ms:
            return FIRST_WAIT_SHARE * (self.overhead_ms(streams) + self._table_ms(streams))
        return self._wait_ms[min(self._wait_ms, key=lambda seen: abs(seen - streams))]

    @property
    def steps(self) -> Container[int] | None:
        """Rows after which a forward gets dearer; None where every row has a price of its own."""
        return self._steps if self._row_ms is None else None

    def wants_plain(self, streams: int) -> bool:
        """Whether the next round of this many streams should go without drafts.

        Only such a round tells what a round takes beyond its forward. Until then drafts look cheaper than they are, and
        rows cannot be learned at all.
        """
        unseen = streams not in self._overhead_ms
        priced = self.known and (self._learns_rows or self.hold.priced)
        return priced and unseen and self._rounds[streams] >= PLAIN_WITHIN - 1

    def least_rows(self, streams: int) -> int | None:
        """Rows that the next round of this many streams should reach whatever they cost; None: let prices decide."""
        if not self._measures or not self.known or self.wants_plain(streams):
            return None
        learning = self._drafted[streams] < LEARNING_ROUNDS or (self._rounds[streams] + 1) % LEARNING_EVERY == 0
        return streams + LEARNING_DRAFTS if learning else None

    def observe(
        self, rows: int, streams: int, round_ms: float, *, drafting: int = 0, deepest: int = 0, ahead: bool = False
    ) -> None:
        """Learn from a round's time: the overhead if it was plain, else what its rows added.

        Never both from one round, or each would learn the same residual. Once a plain round was queued `ahead`, the
        overhead is that of such rounds, and of those without a hold that were not it is learned what waiting takes. One
        that took more than `MOST_TIMES` its price counts as that, since a machine that was busy elsewhere says little.

        Args:
            rows: all rows, forced ones too.
            streams: streams of the round.
            round_ms: its time.
            drafting: streams that had drafts verified.
            deepest: the most drafts that a hold made for one of them; 0 where all came without one.
            ahead: whether it was queued before the round in flight was read.
        """
        if not self.known:
            return
        self._rounds[streams] += 1
        if streams in self._overhead_ms:
            round_ms = min(round_ms, MOST_TIMES * self.of_round(streams)(rows, drafting, deepest))
        waited = streams in self._ahead and not ahead
        if waited and not deepest:
            self._learn_wait(rows, streams, round_ms)
        elif rows == streams:
            self._learn_plain(streams, round_ms, ahead)
        elif drafting:
            self._drafted[streams] += 1
            if streams in self._overhead_ms:
                expected_ms = self._overhead_ms[streams] + self._table_ms(rows) + self.hold.table()(drafting, deepest)
                expected_ms += self.wait_ms(streams) if waited else 0.0
                self._learn(rows - streams, streams, round_ms - expected_ms)

    def _learn_plain(self, streams: int, round_ms: float, ahead: bool) -> None:
        """The first that was queued ahead replaces what was known of those that were not."""
        if ahead and streams not in self._ahead:
            self._ahead.add(streams)
            self._overhead_ms.pop(streams, None)
        sample_ms = max(0.0, round_ms - self._table_ms(streams))
        self._overhead_ms[streams] = _average(self._overhead_ms.get(streams), sample_ms)
        if streams in self._surplus_ms:
            self._surplus_ms[streams] *= FADE

    def _learn_wait(self, rows: int, streams: int, round_ms: float) -> None:
        """Rows of copies count as part of what it takes to wait for them."""
        sample_ms = max(0.0, round_ms - self._overhead_ms[streams] - self._table_ms(rows))
        self._wait_ms[streams] = _average(self._wait_ms.get(streams), sample_ms)

    def _learn(self, drafts: int, streams: int, unexpected_ms: float) -> None:
        if self._learns_rows:
            self._row_ms = _average(self._row_ms, unexpected_ms / drafts)
        else:
            self._surplus_ms[streams] = _average(self._surplus_ms.get(streams), unexpected_ms)

    def _table_ms(self, rows: int) -> float:
        if rows < len(self._width_of):
            return self._window_ms[self._width_of[rows]]
        return self._window_ms[self._widths[-1]] * rows / self._widths[-1]


def _average(known: float | None, sample: float) -> float:
    return sample if known is None else known + RATE * (sample - known)
