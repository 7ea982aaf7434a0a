"""The engine on a tiny random LFM2-MoE: every reply is the plain one, however prompt and drafts are computed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.engine.scripted_engine import ByteTokenizer, Receiver
from tests.models.tiny_lfm2 import MOE, random_lfm2
from tfjax.engine.api import Generation, Sampling
from tfjax.engine.buckets import Plan
from tfjax.engine.engine import Engine, Served
from tfjax.engine.load import compile_buckets
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.probe import probe
from tfjax.engine.step import Bucket, Step
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import LoadedModel
from tfjax.kernels import short_conv
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.proposer import NOTHING, Proposal
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request
from tfjax.models.lfm2_moe import FAMILY
from tfjax.models.rows import ConvCache

LANES, CONTEXT, LENGTH, KEPT, DEPTH = 3, 256, 40, 8, 7
PAGES = LANES * CONTEXT // PAGE_ROWS + KEPT
MEMORY = MemoryPlan(CONTEXT, False, LANES, PAGES, 0, 0, 0, prompt_pages=KEPT)
VERIFY = (Bucket(4, 4, 4), Bucket(16, 16, 8))
PLAN = Plan("row-invariant", VERIFY, (*VERIFY, Bucket(128, 4, 128)))
NARROW = Plan("row-invariant", VERIFY, VERIFY)
"""Prompts in chunks of at most 16 rows."""

GREEDY = Sampling(temperature=0.0)
SEEDED = Sampling(temperature=0.8, top_p=0.95, seed=11)
SIZES = (1, 2, 3, 63, 64, 65, 66, 128, 129, 200)


def prompt(size: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(size).integers(0, MOE.vocab, size).tolist())


JOBS = [(prompt(size), (GREEDY, SEEDED)[i % 2]) for i, size in enumerate(SIZES)]
JOBS += [(prompt(size), (SEEDED, GREEDY)[i % 2]) for i, size in enumerate(SIZES)]


class Erring:
    """It knows the reply, and its first wrong draft stands at depth 0, 1 ... DEPTH in turn."""

    def __init__(self, reply: list[int], rejected: set[int]):
        self.reply, self.rejected, self.done, self.rounds = reply, rejected, 0, 0

    def extend(self, tokens: Any) -> None:
        self.done = 0

    def propose(self, most: int) -> Proposal:
        tokens = self.reply[self.done + 1 : self.done + 1 + most]
        wrong = self.rounds % (DEPTH + 1)
        if wrong < len(tokens):
            tokens[wrong] = (tokens[wrong] + 1) % MOE.vocab
            tokens[wrong + 1 :] = [3] * (len(tokens) - wrong - 1)
        return Proposal(tuple(tokens), (0.97,) * len(tokens)) if tokens else NOTHING

    def pass_unread(self) -> bool:
        return False

    def observe(self, tokens: Any, drafted: int, alone: bool) -> None:
        if len(tokens) <= drafted:
            self.rejected.add(len(tokens) - 1)
        self.done += len(tokens)
        self.rounds += 1


@dataclass(slots=True)
class Stage:
    """A compiled backend, the plain replies by job, and the depths at which drafts were rejected."""

    backend: TargetBackend
    plain: dict[Any, str] = field(default_factory=dict)
    replies: dict[Any, list[int]] = field(default_factory=dict)
    rejected: set[int] = field(default_factory=set)

    def engine(self, prompt_pages: int = 0) -> Engine:
        settings = Settings(
            lanes=LANES, context=CONTEXT, pages=PAGES, page_rows=PAGE_ROWS, vocab_size=MOE.vocab,
            draft_tokens=DEPTH, first_width=DEPTH, prompt_pages=prompt_pages,
        )  # fmt: skip

        def proposer(request: Request) -> Any:
            return Erring(self.replies[request.prompt, request.sampling], self.rejected)

        tokenizer: Any = ByteTokenizer()
        return Engine(self.backend, settings, Served("tiny", tokenizer, ()), proposer=proposer)

    def reply(self, engine: Engine, job: Any, **changes: Any) -> Receiver:
        receiver = self.ask(engine, job, **changes)
        assert receiver.wait().error is None, receiver.wait().error
        return receiver

    def ask(self, engine: Engine, job: Any, **changes: Any) -> Receiver:
        tokens, sampling = job
        receiver = Receiver()
        asked = Generation("x", tokens, LENGTH, sampling, ignore_eos=True)
        engine.submit(replace(asked, **changes), receiver)
        return receiver

    def same(self, receiver: Receiver, job: Any) -> bool:
        finished = receiver.wait()
        assert finished.error is None, finished.error
        return finished.stats.token_sha256 == self.plain[job]


def backend_of(plan: Plan) -> TargetBackend:
    model = LoadedModel(FAMILY, MOE, random_lfm2(MOE, jnp.bfloat16), jnp.bfloat16)
    made = TargetBackend(model, Step(model.module), plan, MEMORY)
    compile_buckets(made, lambda phase, share: None)
    return made


@pytest.fixture(scope="module")
def stage() -> Stage:
    made = Stage(backend_of(PLAN))
    engine = made.engine()
    for job in JOBS:
        receiver = made.reply(engine, job, draft=False)
        made.plain[job], made.replies[job] = receiver.wait().stats.token_sha256, receiver.tokens
    engine.close()
    return made


@pytest.fixture
def engine(stage: Stage) -> Iterator[Engine]:
    opened = stage.engine()
    yield opened
    opened.close()


def test_replies_are_no_trivial_loops(stage: Stage) -> None:
    assert len(set(stage.plain.values())) == len(JOBS)
    assert all(len(set(reply)) > 8 for reply in stage.replies.values())


def test_drafts_rejected_at_every_depth_change_nothing(stage: Stage, engine: Engine) -> None:
    stage.rejected.clear()
    for job in JOBS:
        assert stage.same(stage.reply(engine, job), job)
    assert stage.rejected >= set(range(DEPTH))


@pytest.mark.parametrize("draft", [False, True], ids=["plain", "drafted"])
def test_company_changes_nothing(stage: Stage, engine: Engine, draft: bool) -> None:
    asked = [(job, stage.ask(engine, job, draft=draft)) for job in JOBS]
    assert [job for job, receiver in asked if not stage.same(receiver, job)] == []


def test_chunks_of_the_prompt_change_nothing(stage: Stage) -> None:
    narrow = Stage(backend_of(NARROW), stage.plain, stage.replies)
    engine = narrow.engine()
    for job in JOBS[::3]:
        assert narrow.same(narrow.reply(engine, job), job)
    engine.close()


@pytest.mark.parametrize("draft", [False, True], ids=["plain", "drafted"])
def test_prompts_resumed_from_kept_pages(stage: Stage, draft: bool) -> None:
    """Whole pages are reused; a second turn reuses the reply's pages too, which drafts may have helped to fill."""
    engine = stage.engine(KEPT)
    for job in [job for job in JOBS if len(job[0]) > PAGE_ROWS]:
        assert stage.same(stage.reply(engine, job, draft=draft, cache_salt="a"), job)
        again = stage.reply(engine, job, draft=draft, cache_salt="a")
        assert again.wait().stats.cached_tokens == (len(job[0]) - 1) // PAGE_ROWS * PAGE_ROWS
        assert stage.same(again, job)
    engine.close()


def test_a_second_turn_has_the_bits_of_a_fresh_prompt(stage: Stage) -> None:
    engine = stage.engine(KEPT)
    tokens, sampling = JOBS[6]
    stage.reply(engine, JOBS[6], cache_salt="b")
    turn = (*tokens, *stage.replies[JOBS[6]], *prompt(5))[:200]
    resumed = stage.reply(engine, (turn, sampling), cache_salt="b", draft=False)
    fresh = stage.reply(engine, (turn, sampling), cache_salt="c", draft=False)
    assert (resumed.wait().stats.cached_tokens, fresh.wait().stats.cached_tokens) == (PAGE_ROWS, 0)
    assert resumed.tokens == fresh.tokens
    engine.close()


def test_a_cancelled_stream_leaves_no_trace_in_its_lane(stage: Stage, engine: Engine) -> None:
    for _ in range(LANES):
        started = threading.Event()
        gone = Generation("gone", prompt(130), 100, SEEDED, draft=False)
        ticket = engine.submit(gone, lambda _, started=started: started.set())
        assert started.wait(20)
        ticket.cancel()
    for job in JOBS[:5]:
        assert stage.same(stage.reply(engine, job), job)


def test_what_earlier_streams_left_does_not_matter(stage: Stage) -> None:
    """Even if all of it is no number."""
    state = stage.backend.state
    stage.backend.state = state._replace(cache=jax.tree.map(lambda pool: jnp.full_like(pool, jnp.nan), state.cache))
    engine = stage.engine()
    for job in JOBS:
        assert stage.same(stage.reply(engine, job), job)
    engine.close()


def probed(stage: Stage, step: Any) -> Any:
    fresh = jax.tree.map(jnp.zeros_like, stage.backend.state)
    return probe(step, PLAN, MEMORY, MOE.vocab, fresh)[0]


def test_the_probe_passes(stage: Stage) -> None:
    report = probed(stage, stage.backend.step)
    assert report.passed, str(report.difference)


@pytest.mark.slow
def test_the_probe_sees_a_state_taken_one_row_late(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    right = short_conv._kept
    monkeypatch.setattr(short_conv, "_kept", lambda distance, *rest: right(distance + 1, *rest))
    jax.clear_caches()
    difference = probed(stage, backend_of(PLAN).step).difference
    assert difference is not None
    monkeypatch.undo()
    jax.clear_caches()


@pytest.mark.parametrize(("lane", "arrangement"), [(0, "prompt whole"), (LANES - 1, "windows in another lane")])
def test_the_probe_compares_the_convolutions_state(stage: Stage, lane: int, arrangement: str) -> None:
    """A step that spoils one place of a lane's ring, which no later row reads."""

    def spoiling(bucket: Bucket, state: Any, *rest: Any) -> Any:
        stepped = stage.backend.step(bucket, state, *rest)
        if bucket.rows != VERIFY[1].rows:
            return stepped
        first: ConvCache = stepped.state.cache[0]
        spoilt = first._replace(ring=first.ring.at[lane, 125].add(1))
        return stepped._replace(state=stepped.state._replace(cache=(spoilt, *stepped.state.cache[1:])))

    difference = probed(stage, spoiling).difference
    assert difference is not None
    assert (difference.what, difference.position) == ("cache[0].inputs", 125)
    assert difference.arrangement.startswith(arrangement)
