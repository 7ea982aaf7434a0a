"""Proof at load that this backend computes a row with the same bits in every shape that the server uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.engine.buckets import Plan
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


class _Prober:
    """Runs one stream's tokens through forwards of chosen shapes and keeps logits by position."""

    def __init__(self, step: Step, plan: Plan, memory: MemoryPlan, vocab: int, state: State):
        self.step, self.plan, self.memory, self.state = step, plan, memory, state
        self.end = min(memory.context, BLOCK_KEYS + SINGLES // 2)
        spread = np.arange(2 * self.end, dtype=np.int64) * 7919 + 11
        self.tokens = (spread % vocab).astype(np.int32).reshape(2, self.end)
        self.logits: dict[int, NDArray[np.float32]] = {}
        self.widest = 0

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
        _, logits, self.state = self.step(bucket, self.state, token, buffer.matrix, self.page_table(lane))
        drawn = np.asarray(logits)
        for position in range(start, stop) if every else (stop - 1,):
            self.logits[position] = drawn[position - start if every else 0]
        self.widest = max(self.widest, len(used))

    def prompt(self, cuts: Sequence[int], lane: int = 0) -> None:
        """Consecutive chunks ending at `cuts`."""
        start = 0
        for cut in cuts:
            while start < cut:
                stop = min(cut, start + self.plan.prompt[-1].rows)
                self.forward(self.plan.prompt_bucket(stop - start), [(start, stop)], lane)
                start = stop

    def cache(self) -> list[NDArray[np.uint8]]:
        """The probed stream's pages of every layer, as bytes."""
        pages = -(-self.end // PAGE_ROWS)
        leaves = jax.tree.leaves(self.state.cache)
        return [np.asarray(leaf[1 : 1 + pages]).view(np.uint8) for leaf in leaves]


def _windows(prober: _Prober, first: int, widths: Sequence[int], lane: int, beside: bool) -> None:
    start = first
    for width in widths:
        stop = min(start + width, prober.end)
        if stop > start:
            runs = [(start, stop)] + ([(3, 6)] if beside else [])
            rows = sum(b - a for a, b in runs)
            prober.forward(prober.plan.verify_bucket(rows), runs, lane)
        start = stop


def probe(step: Step, plan: Plan, memory: MemoryPlan, vocab: int, state: State) -> tuple[ProbeReport, State]:
    """Compare logits and cache of several arrangements of one stream, bit for bit; returns the state given away."""
    prober = _Prober(step, plan, memory, vocab, state)
    first, end = max(1, prober.end - SINGLES), prober.end
    last_lane = memory.lanes - 1
    neighbour = memory.lanes > 1

    def singles() -> None:
        prober.prompt([first])
        _windows(prober, first, [1] * SINGLES, 0, False)

    def windows() -> None:
        prober.prompt([first], last_lane)
        _windows(prober, first, [2, 3, 5, 1], last_lane, False)

    def one_window() -> None:
        prober.prompt([first])
        _windows(prober, first, [SINGLES], 0, False)

    def neighbours() -> None:
        prober.prompt([first])
        _windows(prober, first, [1, 5, 1, 4], 0, True)

    arrangements: dict[str, Callable[[], None]] = {
        "windows in another lane": windows,
        "one wide window": one_window,
        "prompt whole": lambda: prober.prompt([end]),
        "prompt in odd chunks": lambda: prober.prompt([3, 61, end]),
    }
    if neighbour:
        arrangements["beside another stream"] = neighbours
    singles()
    reference, reference_cache = prober.logits, prober.cache()
    compared = 0
    for name, run in arrangements.items():
        prober.logits, prober.widest = {}, 0
        run()
        for position in sorted(prober.logits.keys() & reference.keys()):
            compared += 1
            if not np.array_equal(prober.logits[position], reference[position]):
                difference = Difference(name, prober.widest, position, "logits")
                return ProbeReport(plan.arithmetic, compared, tuple(arrangements), difference), prober.state
        for layer, (found, wanted) in enumerate(zip(prober.cache(), reference_cache, strict=True)):
            if not np.array_equal(found, wanted):
                position = _first_difference(found, wanted)
                what = f"cached keys or values (array {layer})"
                difference = Difference(name, prober.widest, position, what)
                return ProbeReport(plan.arithmetic, compared, tuple(arrangements), difference), prober.state
    return ProbeReport(plan.arithmetic, compared, tuple(arrangements), None), prober.state


def _first_difference(found: NDArray[np.uint8], wanted: NDArray[np.uint8]) -> int:
    page, _, slot, _ = np.argwhere(found != wanted)[0]
    return int(page * PAGE_ROWS + slot)
