"""DSpark beside the target: it reads the features of every forward, and drafts blocks with the target's noise."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tfjax.engine.api import Sampling
from tfjax.engine.drafters.block_plan import BlockBucket, BlockPlan
from tfjax.engine.drafters.block_step import ASK_FIELDS, JOINED, BlockStep, Told
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.drawing import Drafts
from tfjax.engine.drafters.known_rows import KnownRows
from tfjax.engine.lane_sampling import LaneSampling, fill_each
from tfjax.engine.rows_buffer import RowsBuffer, Run
from tfjax.engine.target import TargetBackend
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.drafter import Ask, Guess
from tfjax.lanes.stream import Stream
from tfjax.lanes.window import Window

log = logging.getLogger(__name__)

NOTHING = Guess(())


@dataclass(frozen=True, slots=True)
class BlockLane:
    """A lane that was opened: its stream, and how that draws."""

    stream: Stream
    sampling: LaneSampling


@dataclass(slots=True)
class Block:
    """What a hold makes for one ask. Not frozen, for speed; nobody changes one.

    Attributes:
        depth: drafts.
        position: of its pending token, the least it can be while the stream's window in flight is unread.
        pending: that token; None where it lies on the device, behind that window.
        slots: rows of the block that are the stream's own.
        first_page: of the context that the drafter knows.
    """

    lane: BlockLane
    depth: int
    position: int
    pending: int | None
    slots: int
    first_page: int


@dataclass(frozen=True, slots=True)
class Holding:
    """A queued hold: each ask's block (None where nothing was drafted), and the unread drafts."""

    blocks: tuple[Block | None, ...]
    drafts: Drafts | None


class DSparkDrafter:
    """Implements `tfjax.lanes.drafter.Drafter`. Lives on the engine thread.

    Its context rows lie in pools of its own under the target's page ids, each at its position: what a forward computed
    for rejected drafts, and what a block wrote of itself, lies past the context and is overwritten later. So nothing is
    left to do when a window is kept. Draws read the target's tables of bias, stops and history.
    """

    step_ms = 0.0
    stands_aside = True

    def __init__(self, model: DraftingModel, step: BlockStep, plan: BlockPlan, target: TargetBackend):
        self.model = model
        self.step = step
        self.plan = plan
        self.target = target
        self.memory = target.memory
        self.depth = plan.depth
        self.context = min(model.context, self.memory.pages_per_lane * PAGE_ROWS)
        self.hold_ms: Mapping[int, Mapping[int, float]] = {}
        self._lanes: dict[int, BlockLane] = {}
        self._held: set[int] = set()
        self._waiting: list[Told] = []
        self._pages = target.page_table  # Of what waits: a lane may have other pages by the time it is taken in.
        self._hold_bucket = cache(plan.hold_bucket)
        self._known = KnownRows(self.memory.pages)
        self.cache = self._empty_cache()
        target.listener = self.listen

    # Lanes

    def open(self, stream: Stream) -> None:
        sampling: Sampling = stream.request.sampling or Sampling(temperature=0.0)
        self._lanes[stream.lane] = BlockLane(stream, LaneSampling.of(sampling, len(stream.request.prompt)))

    def release(self, stream: Stream) -> None:
        self._lanes.pop(stream.lane, None)
        self._held.discard(stream.lane)

    def absorb_prompt(self, stream: Stream, start: int, stop: int) -> None:
        """`listen` did it."""

    def absorb(self, window: Window, kept: int) -> None:
        """`listen` did it."""

    def can_draft(self, stream: Stream) -> bool:
        return stream.lane in self._lanes and self._first_page(stream) is not None

    def _first_page(self, stream: Stream) -> int | None:
        return self._known.first_page(stream.pages, len(stream.context) - 1)

    # Features

    def listen(self, features: jax.Array, places: jax.Array, runs: Sequence[Run]) -> None:
        """Take the rows of a queued forward where there are opened lanes among them, the rejected rows too.

        Rows of other lanes are written beside them, to pages of their own: nobody reads what is not known. Where no
        window has drafts, rows wait for those of the next rounds, or for a hold.
        """
        opened = [run.lane in self._lanes for run in runs]
        for run, known in zip(runs, opened, strict=True):
            self._known.note(self.target.pages.held(run.lane), run, known=known)
        if not any(opened):
            self._catch_up()  # What waits does not last (see Step).
            return
        rows, pages = features.shape[0], self.target.page_table
        if self._waiting and (self._waiting[0].features.shape[0] != rows or self._pages is not pages):
            self._catch_up()
        self._pages = pages
        self._waiting.append(Told(features, places))
        may_wait = self.step.joins(rows) and all(run.rows == 1 for run in runs)
        if not may_wait or len(self._waiting) == JOINED:
            self._catch_up()

    def _catch_up(self) -> None:
        """Take in the features that wait. A call that fails costs the drafter what it knew, and nobody else."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        try:
            told = self.step.join(waiting) if len(waiting) > 1 else waiting[0]
            self.cache = self.step.absorb(self.cache, told, self._pages)
        except Exception as error:  # noqa: BLE001 (the target and its streams do without)
            log.warning("%s lost its context: %s", self.model.name, error)
            self.forget()

    # Rounds

    def hold(self, asks: Sequence[Ask]) -> Holding:
        self._catch_up()
        blocks = tuple(self._block(ask) for ask in asks)
        made = [block for block in blocks if block is not None]
        self._held -= {ask.stream.lane for ask in asks}
        drafts = self._hold(made) if made else None
        self._held |= {block.lane.stream.lane for block in made}
        return Holding(blocks, drafts)

    def holds_for(self, stream: Stream) -> bool:
        """Whether drafts of the stream's latest hold wait on the device."""
        return stream.lane in self._held

    def _block(self, ask: Ask) -> Block | None:
        """What the ask can get: the rows of a block must lie in the stream's pages and in the drafter's context."""
        stream = ask.stream
        pending, first_page = len(stream.context) - 1 + ask.unread, self._first_page(stream)
        slots = min(len(stream.pages) * PAGE_ROWS - pending, self.context - pending)
        depth = min(ask.depth, self.depth, slots - self.plan.first_slot, self.context - pending - 1)
        if depth < 1 or first_page is None:
            return None
        position, token = (len(stream.context), None) if ask.unread else (len(stream.context) - 1, stream.context[-1])
        return Block(self._lanes[stream.lane], depth, position, token, slots, first_page)

    def _hold(self, blocks: Sequence[Block]) -> Drafts:
        bucket = self._hold_bucket(len(blocks), max([block.depth for block in blocks]))
        buffer, asks = self._empty_asks(bucket, len(blocks))
        fill_each(buffer, [block.lane.sampling for block in blocks])
        told = []
        for block in blocks:
            stream = block.lane.stream
            self.target.pages.sync(stream)
            slots = min(block.slots, bucket.slots)
            where = (stream.lane, block.position, block.pending is None)
            told.append((*where, block.pending or 0, slots, block.depth, block.first_page))
        fields = np.array(told, np.int32).T
        for name, values in zip(("lane", "position", "behind"), fields, strict=False):
            buffer[name][: len(blocks)] = values
        asks[:, : len(blocks)] = fields[3:]
        return self._run_hold(bucket, buffer, asks)

    def _empty_asks(self, bucket: BlockBucket, streams: int) -> tuple[RowsBuffer, NDArray[np.int32]]:
        """Of no stream yet; what is not filled stands in the scratch lane and wants nothing."""
        buffer = RowsBuffer(bucket.streams)
        buffer["lane"][:] = self.memory.lanes
        buffer["tile_count"][0] = streams
        return buffer, np.zeros((len(ASK_FIELDS), bucket.streams), np.int32)

    def _run_hold(
        self,
        bucket: BlockBucket,
        buffer: RowsBuffer,
        asks: NDArray[np.int32],
        page_table: jax.Array | None = None,
    ) -> Drafts:
        unread, pages = self.target.unread, self.target.page_table if page_table is None else page_table
        told = np.concatenate([buffer.matrix, asks])
        try:
            drafts, waiting, self.cache = self.step.hold(bucket, self.cache, self.target.state, told, pages)
        except Exception:
            self.forget()
            raise
        self.target.unread = unread._replace(drafts=waiting)
        return drafts

    @property
    def timed_depths(self) -> list[int]:
        return self.plan.timed_depths

    def hold_once(self, streams: int, depth: int) -> None:
        bucket = self.plan.hold_bucket(streams, depth)
        buffer, asks = self._empty_asks(bucket, streams)
        buffer["lane"][:streams] = np.arange(streams)
        buffer["temperature"][:streams] = 1.0
        asks[1, :streams], asks[2, :streams] = bucket.slots, depth
        jax.block_until_ready(self._run_hold(bucket, buffer, asks))

    def rehearse(self, lanes: Sequence[int], position: int, page_table: jax.Array) -> Drafts:
        """Draft greedily behind contexts of equal length that lie in a page table of the caller's."""
        bucket = self.plan.hold_bucket(len(lanes), self.depth)
        buffer, asks = self._empty_asks(bucket, len(lanes))
        buffer["lane"][: len(lanes)], buffer["position"][: len(lanes)] = lanes, position
        asks[1, : len(lanes)], asks[2, : len(lanes)] = bucket.slots, self.depth
        return self._run_hold(bucket, buffer, asks, page_table)

    def read(self, tickets: Sequence[Holding]) -> list[list[Guess]]:
        try:
            read = jax.device_get([ticket.drafts for ticket in tickets])
        except Exception:
            self.forget()
            raise
        return [_guesses(ticket, drafts, self.model.vocab) for ticket, drafts in zip(tickets, read, strict=True)]

    # State

    def _empty_cache(self) -> Any:
        return self.model.empty_cache(self.memory.pages + 1, self.memory.lanes + 1)

    def forget(self) -> None:
        """Begin with an empty cache, as after a call that failed. A stream drafts again from its next page on."""
        self._waiting = []
        self._held.clear()
        self.target.forget_drafts()
        self._known.forget()
        self.cache = None  # Memory is planned for one.
        self.cache = self._empty_cache()


def _guesses(ticket: Holding, drafts: Any, vocab: int) -> list[Guess]:
    """Each ask's drafts, up to the first that is no token or of which the drafter cannot tell how sure it is."""
    found: list[Guess] = []
    row = 0
    for block in ticket.blocks:
        if block is None:
            found.append(NOTHING)
            continue
        tokens: list[int] = drafts.token[row, : block.depth].tolist()
        sure: list[float] = drafts.confidence[row, : block.depth].tolist()
        row += 1
        sound = next(
            (i for i, (token, c) in enumerate(zip(tokens, sure, strict=True)) if not (0 <= token < vocab and c == c)),
            block.depth,
        )
        found.append(Guess(tokens[:sound], sure[:sound]))
    return found
