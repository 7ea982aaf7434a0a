"""A smaller model as drafter: it guesses on the device, with the noise that the target will draw with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tfjax.engine.api import Sampling
from tfjax.engine.drafters.draft_plan import DraftPlan
from tfjax.engine.drafters.draft_step import TILE_ROWS, DraftStep, HoldBucket
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.drawing import Drafts
from tfjax.engine.drafters.hold_times import doubling
from tfjax.engine.lane_sampling import LaneSampling
from tfjax.engine.lane_tables import empty_tables, needs_tables, set_tables
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.page_table import PageTable
from tfjax.engine.rows_buffer import RowsBuffer, Run, lay_out
from tfjax.engine.step import State
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.drafter import Ask, Guess
from tfjax.lanes.stream import Stream
from tfjax.lanes.window import Window

NOTHING = Guess(())


@dataclass(slots=True)
class DraftLane:
    """What the drafter knows of a lane's stream.

    Attributes:
        known: leading tokens of the context whose rows in the drafter's cache are right.
        held_at: position of the pending token that the latest hold drafted after, -1 before any.
        held_rows: rows from there on that are right if its drafts land.
    """

    stream: Stream
    sampling: LaneSampling
    known: int = 0
    held_at: int = -1
    held_rows: int = 0


@dataclass(frozen=True, slots=True)
class Holding:
    """A queued hold: for each ask its lane and depth (None where nothing was drafted), and the unread drafts."""

    asked: tuple[tuple[DraftLane, int] | None, ...]
    drafts: Drafts | None


class SmallModel:
    """Implements `tfjax.lanes.drafter.Drafter`. Lives on the engine thread.

    Its cache has the target's pages under the same ids. A stream costs nothing while it does not draft: its rows are
    computed when it is next asked for.
    """

    step_ms = 0.0
    stands_aside = True

    def __init__(self, model: DraftingModel, step: DraftStep, plan: DraftPlan, memory: MemoryPlan):
        self.model = model
        self.step = step
        self.plan = plan
        self.memory = memory
        self.depth = plan.holds[0].depth
        self.context = min(model.context, memory.pages_per_lane * PAGE_ROWS)
        self.hold_ms: Mapping[int, Mapping[int, float]] = {}
        self._pages = PageTable(memory.lanes, memory.pages_per_lane)
        self._lanes: dict[int, DraftLane] = {}
        self.state = self._empty_state()

    @property
    def page_table(self) -> jax.Array:
        """Shape: int32 [lanes + 1, pages]."""
        return self._pages.on_device

    def warm_up(self) -> None:
        """Compile what only some requests need, so that none of them waits for it."""
        self._set_tables(0, Sampling(), frozenset())

    @property
    def timed_depths(self) -> list[int]:
        return doubling(self.depth)

    def hold_once(self, streams: int, depth: int) -> None:
        bucket = self.plan.hold_bucket(streams)
        buffer = RowsBuffer(bucket.rows)
        runs = [Run(lane, 0, 1) for lane in range(streams)]
        lay_out(buffer, runs, tile_rows=TILE_ROWS, scratch_lane=self.memory.lanes)
        buffer["draw_row"][:streams] = np.arange(streams)
        buffer["temperature"][:streams] = 1.0
        depths = np.zeros(bucket.streams, np.int32)
        depths[:streams] = depth
        jax.block_until_ready(self._run_hold(bucket, np.zeros(bucket.rows, np.int32), buffer, depths))

    # Lanes

    def open(self, stream: Stream) -> None:
        sampling: Sampling = stream.request.sampling or Sampling(temperature=0.0)
        self._lanes[stream.lane] = DraftLane(stream, LaneSampling.of(sampling, len(stream.request.prompt)))
        if needs_tables(sampling):
            self._set_tables(stream.lane, sampling, stream.request.stop_ids)

    def release(self, stream: Stream) -> None:
        self._lanes.pop(stream.lane, None)

    def absorb_prompt(self, stream: Stream, start: int, stop: int) -> None:
        self._absorb_rows(self._lanes[stream.lane], stop)

    def can_draft(self, stream: Stream) -> bool:
        return stream.lane in self._lanes

    # Rounds

    def hold(self, asks: Sequence[Ask]) -> Holding:
        depths = [self._depth(ask) for ask in asks]
        asked = tuple(
            (self._lanes[ask.stream.lane], depth) if depth > 0 else None
            for ask, depth in zip(asks, depths, strict=True)
        )
        parts = [part for part in asked if part is not None]
        return Holding(asked, self._hold(parts) if parts else None)

    def _depth(self, ask: Ask) -> int:
        """Drafts that the ask can get: their rows must lie in the stream's pages and in the drafter's context."""
        known = len(ask.stream.context)
        in_pages = len(ask.stream.pages) * PAGE_ROWS + 1 - known
        return min(ask.depth, self.depth, self.context - known, in_pages)

    def _hold(self, parts: Sequence[tuple[DraftLane, int]]) -> Drafts:
        bucket = self.plan.hold_bucket(len(parts))
        runs = []
        for lane, depth in parts:
            pending = len(lane.stream.context) - 1
            self._absorb_rows(lane, pending + 1 - bucket.rows // len(parts))
            start = min(lane.known, pending)
            runs.append(Run(lane.stream.lane, start, pending + 1 - start))
            lane.known, lane.held_at, lane.held_rows = pending + 1, pending, depth
        token, buffer = self._lay_out([lane for lane, _ in parts], runs, bucket.rows, TILE_ROWS)
        depths = np.zeros(bucket.streams, np.int32)
        row = -1
        for i, ((lane, depth), run) in enumerate(zip(parts, runs, strict=True)):
            row += run.rows
            buffer["draw_row"][i] = row
            lane.sampling.fill(buffer, i, 1)
            depths[i] = depth
        return self._run_hold(bucket, token, buffer, depths)

    def read(self, tickets: Sequence[Holding]) -> list[list[Guess]]:
        try:
            arrays = jax.device_get([ticket.drafts for ticket in tickets])
        except Exception:
            self._start_over()
            raise
        return [_guesses(ticket, drafts, self.model.vocab) for ticket, drafts in zip(tickets, arrays, strict=True)]

    def absorb(self, window: Window, kept: int) -> None:
        lane = self._lanes[window.stream.lane]
        if window.held and window.position == lane.held_at:
            lane.known = max(lane.known, lane.held_at + min(kept, lane.held_rows))

    # Rows

    def _absorb_rows(self, lane: DraftLane, stop: int) -> None:
        """Compute the rows that are missing before position `stop`, as far as the drafter's context goes.

        When pages are short a stream may lose one in which the drafter was ahead of the target, and get another.
        """
        lane.known = min(lane.known, self._pages.sync(lane.stream) * PAGE_ROWS)
        stop = min(stop, self.context)
        while lane.known < stop:
            bucket = self.plan.absorb_bucket(stop - lane.known)
            run = Run(lane.stream.lane, lane.known, min(bucket.rows, stop - lane.known))
            token, buffer = self._lay_out([lane], [run], bucket.rows, bucket.tile_rows)
            try:
                self.state = self.step.absorb(bucket, self.state, token, buffer.matrix, self.page_table)
            except Exception:
                self._start_over()
                raise
            lane.known += run.rows

    def _lay_out(
        self, lanes: Sequence[DraftLane], runs: Sequence[Run], rows: int, tile_rows: int
    ) -> tuple[NDArray[np.int32], RowsBuffer]:
        token, buffer = np.zeros(rows, np.int32), RowsBuffer(rows)
        row = 0
        for lane, run in zip(lanes, runs, strict=True):
            token[row : row + run.rows] = lane.stream.context[run.position : run.position + run.rows]
            row += run.rows
        lay_out(buffer, runs, tile_rows=tile_rows, scratch_lane=self.memory.lanes)
        return token, buffer

    def _run_hold(self, bucket: HoldBucket, token: Any, buffer: RowsBuffer, depths: Any) -> Drafts:
        try:
            drafts, self.state = self.step.hold(bucket, self.state, token, buffer.matrix, depths, self.page_table)
        except Exception:
            self._start_over()
            raise
        return drafts

    # State

    def _empty_state(self) -> State:
        lanes, positions = self.memory.lanes + 1, self.memory.pages_per_lane * PAGE_ROWS
        return State(
            self.model.empty_cache(self.memory.pages + 1, lanes),
            empty_tables(lanes, self.model.vocab, positions),
        )

    def _start_over(self) -> None:
        """The state went to a call that failed. Every lane's rows are computed again when they are needed."""
        self.state = self._empty_state()
        for lane in self._lanes.values():
            lane.known, lane.held_at = 0, -1
            sampling: Sampling = lane.stream.request.sampling or Sampling(temperature=0.0)
            if needs_tables(sampling):
                self._set_tables(lane.stream.lane, sampling, lane.stream.request.stop_ids)

    def _set_tables(self, lane: int, sampling: Sampling, stop_ids: frozenset[int]) -> None:
        self.state = self.state._replace(tables=set_tables(self.state.tables, lane, sampling, stop_ids))


def _guesses(ticket: Holding, drafts: Any, vocab: int) -> list[Guess]:
    """Each ask's drafts; none where one of them is no token, and then only the pending token's row is right."""
    found: list[Guess] = []
    row = 0
    for part in ticket.asked:
        if part is None:
            found.append(NOTHING)
            continue
        lane, depth = part
        guess = Guess(drafts.token[row, :depth].tolist(), drafts.confidence[row, :depth].tolist())
        row += 1
        if not all(0 <= token < vocab for token in guess.tokens):
            guess, lane.held_rows = NOTHING, 1
        found.append(guess)
    return found
