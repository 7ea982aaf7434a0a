"""The lane loop's backend: a target model with paged lanes on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import jax
import numpy as np
from numpy.typing import NDArray

from tfjax.engine.api import Sampling, TokenLogprob
from tfjax.engine.buckets import Plan
from tfjax.engine.forward import Forward
from tfjax.engine.lane_sampling import LaneSampling
from tfjax.engine.lane_tables import empty_tables, needs_tables, set_history, set_tables
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.page_table import PageTable
from tfjax.engine.rows_buffer import RowsBuffer, Run, lay_out
from tfjax.engine.step import Bucket, State, Step, Stepped
from tfjax.engine.unread import FIRST, HELD, Unread, nothing_unread
from tfjax.engine.weights import LoadedModel
from tfjax.kernels.draw import NOT_FINITE, Drawn
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.stream import Stream
from tfjax.lanes.window import Result, Window, WindowMismatch

Listener = Callable[[jax.Array, jax.Array, Sequence[Run]], None]
"""Told a queued forward's features [rows, taps * D], the lane and position of its rows, int32 [2, rows], and its runs,
of which those behind unread windows are told as long as they can be."""


class TargetBackend:
    """Implements `tfjax.lanes.backend.Backend`. Lives on the engine thread.

    The cache needs no work at commit: rows past a stream's length are never visible and get overwritten. Where windows
    end is known on the device as well (`State.unread`), so that others can be queued behind them.

    Attributes:
        kernels: what the model runs by.
        broken: what a forward failed with; the device state is lost then, and with it every stream.
        listener: called after each queued forward, where the step taps layers.
        held: whether a stream's drafts wait on the device; None where the host has to read them.
        pages: which cache pages the lanes have.
    """

    lands = True

    def __init__(self, model: LoadedModel, step: Step, plan: Plan, memory: MemoryPlan):
        self.step = step
        self.plan = plan
        self.kernels = model.kernels
        self.memory = memory
        self.vocab: int = model.config.vocab
        self.widths: Sequence[int] = plan.widths
        self.chunk_rows: Sequence[int] = tuple(bucket.rows for bucket in plan.prompt)[-2:]
        self.window_ms: Mapping[int, float] = {}
        self.state = empty_state(model, memory)
        self.pages = PageTable(memory.lanes, memory.pages_per_lane)
        self._chunk: Drawn | None = None
        self.broken: Exception | None = None
        self.listener: Listener | None = None
        self.held: Callable[[Stream], bool] | None = None
        self._verify_bucket = cache(plan.verify_bucket)
        self._sampling: dict[int, LaneSampling] = {}
        self._first: dict[int, Forward] = {}
        self._latest: Forward | None = None

    @property
    def held_on_target(self) -> bool:
        return self.held is not None

    @property
    def unread(self) -> Unread:
        """What forwards and holds left for those behind them."""
        assert self.state.unread is not None
        return self.state.unread

    @unread.setter
    def unread(self, unread: Unread) -> None:
        self.state = self.state._replace(unread=unread)

    @property
    def page_table(self) -> jax.Array:
        """Shape: int32 [lanes + 1, pages]."""
        return self.pages.on_device

    def warm_up(self) -> None:
        """Compile what only some requests need, so that none of them waits for it."""
        self._set_tables(0, Sampling(), frozenset())
        self._set_history(0, ())

    # Prompts

    def prefill_begin(self, stream: Stream) -> None:
        sampling: Sampling = stream.request.sampling or Sampling(temperature=0.0)
        lane = stream.lane
        self._sampling[lane] = LaneSampling.of(sampling, len(stream.request.prompt))
        self.pages.clear(lane)
        if needs_tables(sampling):
            self._set_tables(lane, sampling, stream.request.stop_ids)
        if stream.cache_length:
            self._set_history(lane, stream.request.prompt[: stream.cache_length])

    def _set_tables(self, lane: int, sampling: Sampling, stop_ids: frozenset[int]) -> None:
        self.state = self.state._replace(tables=set_tables(self.state.tables, lane, sampling, stop_ids))

    def _set_history(self, lane: int, tokens: Sequence[int]) -> None:
        """Penalties look at every token before a draw, also where its row was computed for another stream."""
        self.state = self.state._replace(tables=set_history(self.state.tables, lane, tokens))

    def prefill_step(self, stream: Stream, start: int, stop: int) -> None:
        if self._chunk is not None:
            jax.block_until_ready(self._chunk)  # at most one chunk waits, so that a cancelled prompt ends soon
        for rows in self.plan.prompt_pieces(stop - start):
            stepped = self._prefill(stream, start, start + rows)
            self._chunk = stepped.drawn  # So a prompt's draws are never given back.
            start += rows
        if stop == len(stream.request.prompt):
            self._first[stream.lane] = self._forward([Window(stream, stop - 1, None)], stepped)

    def _prefill(self, stream: Stream, start: int, stop: int) -> Stepped:
        rows = stop - start
        bucket = self.plan.prompt_bucket(rows)
        token = np.zeros(bucket.rows, np.int32)
        token[:rows] = stream.request.prompt[start:stop]
        buffer = self._lay_out(bucket, [(stream, start, rows)])
        buffer["draw_row"][: bucket.draws] = rows - 1
        self._sampling[stream.lane].fill(buffer, 0, bucket.draws)
        return self._run(bucket, token, buffer)

    def first(self, stream: Stream) -> Result:
        return self.read(self._first.pop(stream.lane))[0]

    # Rounds

    def verify(self, windows: Sequence[Window]) -> Forward:
        bucket, buffer, token = self._rows(windows)
        stepped = self._run(bucket, token, buffer)
        self._latest = latest = self._forward(windows, stepped)
        latest.bucket = bucket
        return latest

    def _rows(self, windows: Sequence[Window]) -> tuple[Bucket, RowsBuffer, NDArray[np.int32]]:
        """Bucket, rows and tokens of windows end to end; tokens that the host does not know are negative."""
        rows = [window.rows for window in windows]
        bucket = self._verify_bucket(sum(rows), max(rows))
        parts = [(window.stream, window.position, count) for window, count in zip(windows, rows, strict=True)]
        buffer = self._lay_out(bucket, parts)
        buffer["draw_row"][: bucket.draws] = np.arange(bucket.draws)
        if any(window.pending is None for window in windows):
            self._put_behind(windows, buffer)
        known: list[int] = []
        for window, count in zip(windows, rows, strict=True):
            self._sampling[window.stream.lane].fill(buffer, len(known), count)
            known += (FIRST if window.pending is None else window.pending, *window.drafts, *self._waiting(window))
        token = np.zeros(bucket.rows, np.int32)
        token[: len(known)] = known
        return bucket, buffer, token

    def _waiting(self, window: Window) -> Sequence[int]:
        """Stand-ins of the drafts on the device; where there are none, any token is as good a draft."""
        if window.held and self.held is not None and self.held(window.stream):
            return range(HELD, HELD - window.held, -1)
        return [window.pending or 0] * window.held

    def _put_behind(self, windows: Sequence[Window], buffer: RowsBuffer) -> None:
        """Say which rows begin where windows of the latest forward, unread, end."""
        if self._latest is None:
            raise WindowMismatch("a window waits for the latest forward's draw, which the host has read already")
        unread = {window.stream.lane: window.rows for window in self._latest.windows}
        behind = {window.stream.lane for window in windows if window.pending is None}
        if not behind <= unread.keys():
            raise WindowMismatch(f"lanes {sorted(behind - unread.keys())} have no window in the forward that is unread")
        tiles, is_behind = buffer["tile_count"][0], np.zeros(self.memory.lanes + 1, np.int32)
        is_behind[list(behind)] = 1
        buffer["behind"][:] = is_behind[buffer["lane"]]
        buffer["tile_behind"][:tiles] = is_behind[buffer["tile_lane"][:tiles]]
        buffer.runs = [
            Run(run.lane, run.position, run.rows + unread[run.lane] - 1) if run.lane in behind else run
            for run in buffer.runs
        ]

    def _forward(self, windows: Sequence[Window], stepped: Stepped) -> Forward:
        """Whatever will be read is on its way to the host as soon as it is there."""
        wanted = tuple([self._sampling[window.stream.lane].logprobs for window in windows])
        forward = Forward(tuple(windows), wanted, stepped.drawn, stepped.token)
        for array in forward.read_back:
            array.copy_to_host_async()
        return forward

    def read(self, ticket: Forward) -> list[Result]:
        try:
            tokens: list[int] = np.asarray(ticket.drawn.token).tolist()
            shown: list[int] = np.asarray(ticket.token).tolist() if ticket.has_held else []
        except Exception as error:
            self.broken = error
            raise
        if self._latest is ticket:
            self._latest = None  # Nothing ran ahead of it. Freed, so that the next draws can lie where these did.
        results, row = [], 0
        for window, wanted in zip(ticket.windows, ticket.logprobs, strict=True):
            draws = tokens[row : row + window.rows]
            entries = None if wanted is None else _logprobs(ticket.drawn, row, draws, wanted)
            trouble = "the model's logits are not finite" if NOT_FINITE in draws else None
            drafts = shown[row + 1 : row + window.rows] if window.held else ()
            results.append(Result(draws, entries, trouble, drafts))
            row += window.rows
        if ticket.bucket is not None:
            self.step.give_back(ticket.bucket, ticket.drawn, ticket.token)
        return results

    def keep(self, windows: Sequence[Window], kept: Sequence[int]) -> None:
        for window, count in zip(windows, kept, strict=True):
            if not 0 <= count <= window.rows:
                raise WindowMismatch(f"{count} rows kept of a window of {window.rows}")

    def release(self, stream: Stream) -> None:
        self._sampling.pop(stream.lane, None)
        self._first.pop(stream.lane, None)
        latest = self._latest
        if latest is not None and not any(lane in self._sampling for lane in latest.lanes):
            self._latest = None  # Of its streams nobody is left to read it.

    def forget_drafts(self) -> None:
        """No draft waits on the device: what made them failed, and forwards would fail with it."""
        self.unread = self.unread._replace(drafts=nothing_unread(self.memory.lanes + 1).drafts)

    # Rows

    def _lay_out(self, bucket: Bucket, parts: Sequence[tuple[Stream, int, int]]) -> RowsBuffer:
        """Rows of (stream, position, rows) end to end."""
        for stream, _, _ in parts:
            self.pages.sync(stream)
        buffer = RowsBuffer(bucket.rows)
        runs = [Run(stream.lane, position, rows) for stream, position, rows in parts]
        lay_out(buffer, runs, tile_rows=bucket.tile_rows, scratch_lane=self.memory.lanes)
        return buffer

    def _run(self, bucket: Bucket, token: NDArray[np.int32], buffer: RowsBuffer) -> Stepped:
        try:
            stepped = self.step(bucket, self.state, token, buffer.matrix, self.page_table)
        except Exception as error:
            self.broken = error  # the state was given away to the failed call
            raise
        self.state = stepped.state
        if self.listener is not None and stepped.features is not None:
            self.listener(stepped.features, stepped.places, buffer.runs)
        return stepped


def empty_state(model: LoadedModel, memory: MemoryPlan) -> State:
    """Zeroed cache and tables for the planned lanes, one scratch lane and one scratch page."""
    lanes, vocab = memory.lanes + 1, model.config.vocab
    positions = memory.pages_per_lane * PAGE_ROWS
    return State(
        model.empty_cache(memory.pages + 1, lanes),
        empty_tables(lanes, vocab, positions),
        nothing_unread(lanes),
    )


def _logprobs(drawn: Drawn, row: int, draws: Sequence[int], wanted: int) -> list[TokenLogprob]:
    own, ids, top = (np.asarray(x) for x in (drawn.logprob, drawn.top_token, drawn.top_logprob))
    return [
        TokenLogprob(
            token,
            float(own[row + i]),
            tuple(zip(ids[row + i, :wanted].tolist(), top[row + i, :wanted].tolist(), strict=True)),
        )
        for i, token in enumerate(draws)
    ]
