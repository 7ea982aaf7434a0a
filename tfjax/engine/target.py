"""The lane loop's backend: a target model with paged lanes on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tfjax.engine.api import Sampling, TokenLogprob
from tfjax.engine.buckets import Plan
from tfjax.engine.forward import NO_ROWS, Forward
from tfjax.engine.held_tokens import NO_PLACE, HeldTokens
from tfjax.engine.landing import Landed, Landing
from tfjax.engine.lane_sampling import LaneSampling
from tfjax.engine.lane_tables import empty_tables, needs_tables, set_history, set_tables
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.page_table import PageTable
from tfjax.engine.rows_buffer import RowsBuffer, Run, lay_out
from tfjax.engine.step import Bucket, State, Step
from tfjax.engine.weights import LoadedModel
from tfjax.kernels.draw import NOT_FINITE, Drawn
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.stream import Stream
from tfjax.lanes.window import Result, Window, WindowMismatch

Listener = Callable[[jax.Array, RowsBuffer], None]
"""Told a queued forward's features [rows, taps * D] and its rows."""


class TargetBackend:
    """Implements `tfjax.lanes.backend.Backend`. Lives on the engine thread.

    The cache needs no work at commit: rows past a stream's length are never visible and get overwritten.

    Attributes:
        kernels: what the model runs by.
        broken: what a forward failed with; the device state is lost then, and with it every stream.
        listener: called after each queued forward, where the step taps layers.
        held: puts drafts that lie on the device among a forward's tokens; None where the host has to read them.
        landing: puts rows behind a forward in flight; None where only a lone stream's next row can be queued there.
        pages: which cache pages the lanes have.
    """

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
        self.held: HeldTokens | None = None
        self.landing: Landing | None = None
        self._verify_bucket = cache(plan.verify_bucket)
        self._sampling: dict[int, LaneSampling] = {}
        self._first: dict[int, Forward] = {}
        self._latest: Forward | None = None

    @property
    def held_on_target(self) -> bool:
        return self.held is not None

    @property
    def lands(self) -> bool:
        return self.landing is not None

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
            self._chunk = drawn = self._prefill(stream, start, start + rows)
            start += rows
        if stop == len(stream.request.prompt):
            self._first[stream.lane] = self._forward([Window(stream, stop - 1, None)], drawn)

    def _prefill(self, stream: Stream, start: int, stop: int) -> Drawn:
        rows = stop - start
        bucket = self.plan.prompt_bucket(rows)
        token = np.zeros(bucket.rows, np.int32)
        token[:rows] = stream.request.prompt[start:stop]
        buffer = self._lay_out(bucket, [(stream, start, rows)])
        buffer["draw_row"][: bucket.draws] = rows - 1
        self._sampling[stream.lane].fill(buffer, 0, bucket.draws)
        return self._run(bucket, token, buffer.matrix, buffer)

    def first(self, stream: Stream) -> Result:
        return self.read(self._first.pop(stream.lane))[0]

    # Rounds

    def verify(self, windows: Sequence[Window]) -> Forward:
        bucket, buffer, host = self._rows(windows)
        token: Any = host
        if self.held is not None and any(window.held for window in windows):
            token = self.held.put(host, windows)
        matrix: Any = buffer.matrix
        if any(window.pending is None for window in windows):
            token, matrix = self._behind_latest(windows, token, buffer)
        if any(window.held for window in windows):
            token.copy_to_host_async()
        drawn = self._run(bucket, token, matrix, buffer)
        self._latest = latest = self._forward(windows, drawn, token, buffer["lane"])
        return latest

    def _rows(self, windows: Sequence[Window]) -> tuple[Bucket, RowsBuffer, NDArray[np.int32]]:
        """Bucket, rows and tokens of windows end to end; a first token that the host does not know is negative."""
        rows = [window.rows for window in windows]
        bucket = self._verify_bucket(sum(rows), max(rows))
        parts = [(window.stream, window.position, count) for window, count in zip(windows, rows, strict=True)]
        buffer = self._lay_out(bucket, parts)
        buffer["draw_row"][: bucket.draws] = np.arange(bucket.draws)
        known: list[int] = []
        for window, count in zip(windows, rows, strict=True):
            self._sampling[window.stream.lane].fill(buffer, len(known), count)
            first = NO_PLACE if window.pending is None else window.pending
            known += (first, *window.drafts, *[0] * window.held)
        token = np.zeros(bucket.rows, np.int32)
        token[: len(known)] = known
        return bucket, buffer, token

    def _forward(
        self, windows: Sequence[Window], drawn: Drawn, token: Any = None, lane: NDArray[np.int32] = NO_ROWS
    ) -> Forward:
        wanted = tuple([self._sampling[window.stream.lane].logprobs for window in windows])
        return Forward(tuple(windows), wanted, drawn, token, lane)

    def _behind_latest(self, windows: Sequence[Window], token: Any, buffer: RowsBuffer) -> tuple[Any, Any]:
        """Tokens and matrix of a forward of which some windows begin where those of the latest one, unread, end."""
        latest = self._unread()
        behind = [window.pending is None for window in windows]
        if latest.is_plain and all(behind) and [run.lane for run in buffer.runs if run.rows == 1] == latest.lanes:
            return latest.drawn.token, buffer.matrix
        moved = self._landing().move(self._landed(), token, buffer.matrix)
        buffer.places = moved.places
        unread = {window.stream.lane: window.rows for window in latest.windows}
        buffer.runs = [
            Run(run.lane, run.position, run.rows + unread[run.lane] - 1) if is_behind else run
            for run, is_behind in zip(buffer.runs, behind, strict=True)
        ]
        return moved.token, moved.matrix

    def move_asks(self, told: NDArray[np.int32]) -> Any:
        """What a drafter's hold is told (see block_step), where its pending tokens are negative put behind the windows
        of the latest forward."""
        return self._landing().move_asks(self._landed(), told)

    def _landed(self) -> Landed:
        """Where the windows of the latest forward, still unread, end."""
        latest = self._unread()
        if latest.landed is None:
            latest.landed = self._landing().land(latest.token, latest.drawn.token, latest.lane)
        return latest.landed

    def _landing(self) -> Landing:
        if self.landing is None:
            raise WindowMismatch("a window waits for more than one row's draw, and this target lands no windows")
        return self.landing

    def _unread(self) -> Forward:
        if self._latest is None:
            raise WindowMismatch("a window waits for the latest forward's draw, which the host has read already")
        return self._latest

    def read(self, ticket: Forward) -> list[Result]:
        try:
            tokens: list[int] = np.asarray(ticket.drawn.token).tolist()
            has_held = any(window.held for window in ticket.windows)
            shown: list[int] = np.asarray(ticket.token).tolist() if has_held else []
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

    # Rows

    def _lay_out(self, bucket: Bucket, parts: Sequence[tuple[Stream, int, int]]) -> RowsBuffer:
        """Rows of (stream, position, rows) end to end."""
        for stream, _, _ in parts:
            self.pages.sync(stream)
        buffer = RowsBuffer(bucket.rows)
        runs = [Run(stream.lane, position, rows) for stream, position, rows in parts]
        lay_out(buffer, runs, tile_rows=bucket.tile_rows, scratch_lane=self.memory.lanes)
        return buffer

    def _run(self, bucket: Bucket, token: Any, matrix: Any, buffer: RowsBuffer) -> Drawn:
        try:
            stepped = self.step(bucket, self.state, token, matrix, self.page_table)
        except Exception as error:
            self.broken = error  # the state was given away to the failed call
            raise
        self.state = stepped.state
        if self.listener is not None and stepped.features is not None:
            self.listener(stepped.features, buffer)
        return stepped.drawn


def empty_state(model: LoadedModel, memory: MemoryPlan) -> State:
    """Zeroed cache and tables for the planned lanes, one scratch lane and one scratch page."""
    lanes, vocab = memory.lanes + 1, model.config.vocab
    positions = memory.pages_per_lane * PAGE_ROWS
    return State(
        model.empty_cache(memory.pages + 1, lanes),
        empty_tables(lanes, vocab, positions),
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
