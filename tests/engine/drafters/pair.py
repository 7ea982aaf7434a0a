"""A tiny target and a drafter on its lanes, and a plain loop that drafts, verifies and keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.models.tiny import TINY, random_llama
from tfjax.engine.api import Sampling
from tfjax.engine.buckets import Plan
from tfjax.engine.drafters.draft_plan import draft_plan
from tfjax.engine.drafters.draft_step import DraftStep
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.small_model import SmallModel
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.step import Bucket, Step
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import LoadedModel
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.drafter import Ask
from tfjax.lanes.stream import Request, Stream, Times
from tfjax.lanes.window import Window
from tfjax.models.llama import FAMILY, LlamaConfig

LANES, DEPTH = 4, 8
VERIFY = tuple(Bucket(rows, rows, 4) for rows in (4, 32))
PLAN = Plan("row-invariant", VERIFY, (*VERIFY, Bucket(64, 2, 64)))
PROMPTS = [
    tuple(np.random.default_rng(seed).integers(0, TINY.vocab, length).tolist())
    for seed, length in ((1, 9), (2, 70), (3, 1), (4, 33))
]


def loaded(config: LlamaConfig = TINY, seed: int = 0, dtype: Any = np.float32) -> LoadedModel:
    return LoadedModel(FAMILY, config, random_llama(config, dtype, seed), dtype)


def memory_of(context: int = 256, lanes: int = LANES) -> MemoryPlan:
    return MemoryPlan(context, False, lanes, lanes * -(-context // PAGE_ROWS), 0, 0, 0)


def started_target(model: LoadedModel, memory: MemoryPlan) -> TargetBackend:
    target = TargetBackend(model, Step(model.module), PLAN, memory)
    for bucket in PLAN.all:
        target.step.compile(bucket, target.state, target.page_table)
    return target


def drafting(model: LoadedModel, vocab: int = TINY.vocab, ids: Sequence[int] | None = None) -> DraftingModel:
    known = np.arange(vocab) if ids is None else np.array(ids)
    return DraftingModel("tiny", "model", model, jnp.asarray(known, jnp.int32), vocab)


def started_drafter(model: DraftingModel, memory: MemoryPlan, depth: int = DEPTH) -> SmallModel:
    plan = draft_plan(memory.lanes, depth, least_rows=2)
    drafter = SmallModel(model, DraftStep(model.loaded.module, model.ids), plan, memory)
    for hold in plan.holds:
        drafter.step.prepare_holding(hold, drafter.state, drafter.page_table)()
    for absorb in plan.absorbs[:2]:
        drafter.step.prepare_absorbing(absorb, drafter.state, drafter.page_table)()
    drafter.warm_up()
    return drafter


def another(drafter: SmallModel, model: DraftingModel, memory: MemoryPlan | None = None) -> SmallModel:
    """A fresh drafter of a model with the same shapes, on the programs that were compiled for `drafter`."""
    step = DraftStep(model.loaded.module, model.ids)
    step._compiled = drafter.step._compiled
    return SmallModel(model, step, drafter.plan, memory or drafter.memory)


def stream_on(
    lane: int,
    prompt: Sequence[int],
    *,
    memory: MemoryPlan,
    pages: Sequence[int] | None = None,
    stop_ids: tuple[int, ...] = (),
    **sampling: Any,
) -> Stream:
    request = Request(
        f"lane{lane}", tuple(prompt), 500, frozenset(stop_ids), sampling=Sampling(**{"temperature": 0.0} | sampling)
    )
    each = memory.pages // memory.lanes
    own = list(range(each * lane, each * (lane + 1))) if pages is None else list(pages)
    return Stream(request, len(prompt) + 500, Times(0.0), lane=lane, pages=own)


@dataclass(slots=True)
class Pair:
    """Target and drafter, driven without the lane loop. `landed` counts kept drafts by stream id."""

    target: TargetBackend
    drafter: SmallModel
    drafted: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    landed: dict[str, list[int]] = field(default_factory=dict)

    def start(self, stream: Stream, *, absorb: bool = True) -> None:
        prompt = len(stream.request.prompt)
        self.target.prefill_begin(stream)
        self.drafter.open(stream)
        for start in range(0, prompt, 50):
            stop = min(prompt, start + 50)
            self.target.prefill_step(stream, start, stop)
            if absorb:
                self.drafter.absorb_prompt(stream, start, stop)
        stream.context.append(self.target.first(stream).draws[0])
        self.drafted[stream.request.id] = []
        self.landed[stream.request.id] = []

    def draft(self, streams: Sequence[Stream], depths: Sequence[int]) -> list[tuple[int, ...]]:
        ticket = self.drafter.hold([Ask(stream, depth) for stream, depth in zip(streams, depths, strict=True)])
        (guesses,) = self.drafter.read([ticket])
        return [tuple(guess.tokens) for guess in guesses]

    @property
    def all_landed(self) -> bool:
        drafted = {name: [len(tokens) for tokens in rounds] for name, rounds in self.drafted.items()}
        return any(drafted.values()) and drafted == self.landed

    def end(self, streams: Sequence[Stream]) -> None:
        for stream in streams:
            self.target.release(stream)
            self.drafter.release(stream)

    def round(self, streams: Sequence[Stream], depths: Sequence[int], *, keep: int | None = None) -> None:
        """One round; depth 0 is a plain window. `keep` lowers how many rows are kept."""
        asked = [i for i, depth in enumerate(depths) if depth]
        drafts: list[tuple[int, ...]] = [()] * len(streams)
        if asked:
            found = self.draft([streams[i] for i in asked], [depths[i] for i in asked])
            for i, tokens in zip(asked, found, strict=True):
                drafts[i] = tokens
        self.verify(streams, drafts, keep=keep)

    def verify(self, streams: Sequence[Stream], drafts: Sequence[tuple[int, ...]], *, keep: int | None = None) -> None:
        """The second half of a round: what the target makes of the drafts."""
        shown = [
            Window(stream, len(stream.context) - 1, stream.context[-1], tokens)
            for stream, tokens in zip(streams, drafts, strict=True)
        ]
        results = self.target.read(self.target.verify(shown))
        for stream, tokens, result in zip(streams, drafts, results, strict=True):
            right = 0
            while right < len(tokens) and tokens[right] == result.draws[right]:
                right += 1
            kept = right + 1 if keep is None else min(keep, right + 1)
            window = Window(stream, len(stream.context) - 1, stream.context[-1], held=len(tokens))
            self.drafter.absorb(window, kept)
            stream.context.extend(result.draws[:kept])
            if tokens:
                self.drafted[stream.request.id].append(tokens)
                self.landed[stream.request.id].append(right)


def cached_rows(state: Any, stream: Stream, stop: int) -> list[np.ndarray]:
    """Keys and values of positions [0, stop) of a stream, per layer and kind."""
    pages = np.add(stream.pages, 1)
    return [
        np.asarray(pool)[pages].swapaxes(1, 2).reshape(-1, *np.asarray(pool).shape[1::2])[:stop]
        for pool in jax.tree.leaves(state.cache)
    ]
