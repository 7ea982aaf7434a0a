"""Proof at load that this backend computes a row with the same bits in every shape that the server uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.engine.buckets import Plan
from tfjax.engine.cached_rows import rows_by_position
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.rows_buffer import RowsBuffer, Run, lay_out
from tfjax.engine.step import Bucket, State, Step
from tfjax.kernels.paged_attention import BLOCK_KEYS, PAGE_ROWS

SINGLES = 11
"""Rows that are computed one by one; the other arrangements must give their bits again."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first row that came out with other bits."""

    arrangement: str
    rows: int
    position: int
    what: str

    def __str__(self) -> str:
        row = f"the row at position {self.position}"
        return f"{self.arrangement}: {self.what} of {row} differ in a forward of {self.rows} rows"


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What was compared. `difference` is None where every bit agreed."""

    arithmetic: str
    rows_compared: int
    arrangements: tuple[str, ...]
    difference: Difference | None

    @property
    def passed(self) -> bool:
        return self.difference is None


class _Found(NamedTuple):
    """What the first arrangement gave: logits and draws by position, and the rows of the cache."""

    logits: Mapping[int, NDArray[np.float32]]
    drawn: Mapping[int, int]
    cache: Mapping[str, NDArray[np.uint8]]


class _Prober:
    """Runs one stream's tokens through forwards of chosen shapes and keeps logits by position."""

    def __init__(self, step: Step, plan: Plan, memory: MemoryPlan, vocab: int, state: State):
        self.step, self.plan, self.memory, self.state = step, plan, memory, state
        self.end = min(memory.context, BLOCK_KEYS + SINGLES // 2)
        self.first = max(1, self.end - SINGLES)
        spread = np.arange(2 * self.end, dtype=np.int64) * 7919 + 11
        self.tokens = (spread % vocab).astype(np.int32).reshape(2, self.end)
        self.logits: dict[int, NDArray[np.float32]] = {}
        self.drawn: dict[int, int] = {}
        self.rows: dict[int, int] = {}
        self.lane = 0

    def page_table(self, lane: int) -> jax.Array:
        """The probed lane's pages are 1.., a neighbour's lie behind them."""
        each = -(-self.end // PAGE_ROWS)
        table = np.zeros((self.memory.lanes + 1, self.memory.pages_per_lane), np.int32)
        table[lane, :each] = 1 + np.arange(each)
        if self.memory.lanes > 1:
            table[(lane + 1) % self.memory.lanes, :each] = 1 + each + np.arange(each)
        return jnp.array(table)

    def forward(self, bucket: Bucket, runs: Sequence[tuple[int, int]], lane: int) -> None:
        """One forward of (start, stop) rows: the first run is the probed stream's, a second one its neighbour's."""
        rows = [Run((lane + i) % self.memory.lanes, start, stop - start) for i, (start, stop) in enumerate(runs)]
        token = np.zeros(bucket.rows, np.int32)
        used = np.concatenate([self.tokens[i, start:stop] for i, (start, stop) in enumerate(runs)])
        token[: len(used)] = used
        buffer = RowsBuffer(bucket.rows)
        lay_out(buffer, rows, tile_rows=bucket.tile_rows, scratch_lane=self.memory.lanes)
        start, stop = runs[0]
        every = bucket.draws == bucket.rows
        buffer["draw_row"][: bucket.draws] = np.arange(bucket.draws) if every else stop - start - 1
        # Every other position is drawn with noise, the rest by the largest logit.
        noisy = buffer["position"][buffer["draw_row"][: bucket.draws]] % 2
        buffer["temperature"][: bucket.draws], buffer["seed_low"][: bucket.draws] = 0.8 * noisy, 77
        stepped = self.step(bucket, self.state, token, buffer.matrix, self.page_table(lane))
        self.state, self.lane = stepped.state, lane
        logits, drawn = np.asarray(stepped.logits), np.asarray(stepped.drawn.token)
        for position in range(start, stop):
            self.rows[position] = len(used)
            if every or position == stop - 1:
                place = position - start if every else 0
                self.logits[position], self.drawn[position] = logits[place], int(drawn[place])

    def prompt(self, *cuts: int, lane: int = 0) -> None:
        """Consecutive chunks ending at `cuts`."""
        start = 0
        for cut in cuts:
            while start < min(cut, self.end):
                stop = min(cut, self.end, start + self.plan.prompt[-1].rows)
                self.forward(self.plan.prompt_bucket(stop - start), [(start, stop)], lane)
                start = stop

    def windows(self, widths: Sequence[int], *, lane: int = 0, neighbour: int = 0) -> None:
        """Windows after the prompt, each perhaps beside `neighbour` rows of another stream."""
        start = self.first
        for width in widths:
            stop = min(start + width, self.end)
            if stop > start:
                runs = [(start, stop), *self._beside(neighbour)]
                rows = [b - a for a, b in runs]
                self.forward(self.plan.verify_bucket(sum(rows), max(rows)), runs, lane)
            start = stop

    def full(self, bucket: Bucket) -> None:
        """The rows after the prompt in forwards of one bucket, which another stream's rows fill up."""
        width = min(bucket.rows, SINGLES)
        for start in range(self.first, self.end, width):
            stop = min(start + width, self.end)
            self.forward(bucket, [(start, stop), *self._beside(bucket.rows - width)], 0)

    def _beside(self, rows: int) -> list[tuple[int, int]]:
        """A neighbour's rows, none where there is but one lane."""
        start = min(3, self.end - 1)
        stop = min(start + rows, self.end)
        return [(start, stop)] if stop > start and self.memory.lanes > 1 else []

    def cache(self) -> dict[str, NDArray[np.uint8]]:
        """The probed stream's rows of every part of the cache, as bytes."""
        pages = range(1, 1 + -(-self.end // PAGE_ROWS))
        return rows_by_position(self.state.cache, pages, self.lane, self.end)

    def difference(self, arrangement: str, wanted: _Found) -> Difference | None:
        """The first row that is another than that given: bits of the lowest layer, those of the logits, or its draw."""
        found = self.cache()
        for what, rows in wanted.cache.items():
            differs = (found[what] != rows).any(-1)
            if differs.any():
                position = int(differs.argmax())
                return Difference(arrangement, self.rows.get(position, 0), position, what)
        for position in sorted(self.logits.keys() & wanted.logits.keys()):
            if not np.array_equal(self.logits[position].view(np.uint32), wanted.logits[position].view(np.uint32)):
                return Difference(arrangement, self.rows[position], position, "logits")
            if self.drawn[position] != wanted.drawn[position]:
                return Difference(arrangement, self.rows[position], position, "draws")
        return None


def probe(step: Step, plan: Plan, memory: MemoryPlan, vocab: int, state: State) -> tuple[ProbeReport, State]:
    """Compare logits, draws and cache of several arrangements of one stream, bit for bit; the state comes back."""
    prober = _Prober(step, plan, memory, vocab, state)
    first, last_lane = prober.first, memory.lanes - 1
    prober.prompt(first)
    prober.windows([1] * SINGLES)
    wanted = _Found(prober.logits, prober.drawn, prober.cache())
    arrangements = _arrangements(prober, first, last_lane)
    compared, difference = 0, None
    for name, run in arrangements.items():
        prober.logits, prober.drawn, prober.rows = {}, {}, {}
        run()
        compared += len(prober.logits.keys() & wanted.logits.keys())
        difference = prober.difference(name, wanted)
        if difference is not None:
            break
    return ProbeReport(plan.arithmetic, compared, tuple(arrangements), difference), prober.state


def _arrangements(prober: _Prober, first: int, last_lane: int) -> dict[str, Callable[[], None]]:
    """Ways to compute the same rows. Where the prompt is not run again, it stands in the cache already."""

    def windows() -> None:
        prober.prompt(first, lane=last_lane)
        prober.windows([2, 3, 5, 1], lane=last_lane)

    def neighbours() -> None:
        prober.prompt(first)
        prober.windows([1, 5, 1, 4], neighbour=3)

    found: dict[str, Callable[[], None]] = {
        "windows in another lane": windows,
        "prompt whole": lambda: prober.prompt(prober.end),
        "prompt in odd chunks": lambda: prober.prompt(3, 61, prober.end),
    }
    found |= {
        f"bucket of {bucket.rows} rows in tiles of {bucket.tile_rows}": partial(prober.full, bucket)
        for bucket in prober.plan.verify
    }
    return found | ({"beside another stream": neighbours} if last_lane else {})
