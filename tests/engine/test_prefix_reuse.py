"""Prompts reused on a tiny model with random weights: every reply has the bits of the one that computed its prompt."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest

from tests.engine.scripted_engine import ByteTokenizer, Receiver
from tests.engine.test_workload import (
    CONTEXT,
    KEPT,
    KINDS,
    LANES,
    LENGTH,
    MEMORY,
    PLAN,
    Knowing,
    logprobs_of,
    prompt,
)
from tests.models.tiny import TINY, random_llama
from tfjax.engine.api import Generation, Sampling
from tfjax.engine.compiles import compiles
from tfjax.engine.engine import Engine, Served
from tfjax.engine.load import compile_buckets
from tfjax.engine.step import Step
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import LoadedModel
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.copy_drafts import CopyDrafts
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request
from tfjax.models.llama import FAMILY

SIZES = (63, 64, 65, 128, 129, 140)
EACH_KIND = pytest.mark.parametrize("kind", KINDS)


class Reuse:
    """An engine with a prompt cache, and the replies of prompts that nobody computed before."""

    def __init__(self, backend: TargetBackend) -> None:
        self.backend = backend
        self.known: dict[Any, list[int]] = {}
        self.engine = self.start(KEPT)

    def start(self, prompt_pages: int) -> Engine:
        settings = Settings(
            lanes=LANES, context=CONTEXT, pages=MEMORY.pages, page_rows=PAGE_ROWS, vocab_size=TINY.vocab,
            draft_tokens=7, first_width=7, prompt_pages=prompt_pages,
        )  # fmt: skip
        tokenizer: Any = ByteTokenizer()
        return Engine(self.backend, settings, Served("tiny", tokenizer, ()), proposer=self.proposer)

    def proposer(self, request: Request) -> Any:
        reply = self.known.get((request.prompt, request.sampling))
        return CopyDrafts(4) if reply is None else Knowing(reply)

    def ask(self, tokens: tuple[int, ...], kind: str, **changes: Any) -> Receiver:
        sampling: Sampling = KINDS[kind]
        stops = (7,) if sampling.min_tokens else ()
        asked = Generation("x", tokens, LENGTH, sampling, ignore_eos=True, stop_token_ids=stops)
        receiver = Receiver()
        self.engine.submit(replace(asked, **changes), receiver)
        return receiver

    def reply(self, tokens: tuple[int, ...], kind: str, **changes: Any) -> Receiver:
        receiver = self.ask(tokens, kind, **changes)
        assert receiver.wait().error is None
        return receiver

    def fresh(self, tokens: tuple[int, ...], kind: str, **changes: Any) -> Receiver:
        """The undrafted reply under a salt of its own."""
        receiver = self.reply(tokens, kind, draft=False, cache_salt=f"fresh {len(self.known)}", **changes)
        assert receiver.wait().stats.cached_tokens == 0
        self.known[tokens, KINDS[kind]] = receiver.tokens
        return receiver

    def check(self, receiver: Receiver, fresh: Receiver, cached: int) -> None:
        stats = receiver.wait().stats
        assert stats.cached_tokens == cached
        assert stats.token_sha256 == fresh.wait().stats.token_sha256
        assert logprobs_of(receiver) == logprobs_of(fresh)


@pytest.fixture(scope="module")
def backend() -> TargetBackend:
    model = LoadedModel(FAMILY, TINY, random_llama(TINY, jnp.bfloat16), jnp.bfloat16)
    made = TargetBackend(model, Step(model.module), PLAN, MEMORY)
    compile_buckets(made, lambda phase, share: None)
    return made


@pytest.fixture(scope="module")
def compiled(backend: TargetBackend) -> int:
    return compiles()


@pytest.fixture
def reuse(backend: TargetBackend, compiled: int) -> Iterator[Reuse]:
    made = Reuse(backend)
    yield made
    made.engine.close()


def whole_pages(tokens: int) -> int:
    return tokens // PAGE_ROWS * PAGE_ROWS


@EACH_KIND
@pytest.mark.parametrize("size", SIZES)
def test_a_prompt_asked_again(reuse: Reuse, kind: str, size: int) -> None:
    tokens = prompt(size, size)
    fresh = reuse.fresh(tokens, kind)
    reuse.check(reuse.reply(tokens, kind), fresh, 0)
    for draft in (True, False):
        reuse.check(reuse.reply(tokens, kind, draft=draft), fresh, whole_pages(size - 1))


@EACH_KIND
@pytest.mark.parametrize("size", [39, 40, 41, 42, 104, 105, 106])
def test_a_second_turn_reuses_prompt_and_reply(reuse: Reuse, kind: str, size: int) -> None:
    """The first turn's last token is not in the cache: 24 tokens after 41 of prompt commit 64 rows."""
    tokens = prompt(size, size)
    first = reuse.reply(tokens, kind)
    second = (*tokens, *first.tokens, 3, 1, 4)
    fresh = reuse.fresh(second, kind)
    for draft in (True, False):
        cached = whole_pages(size + len(first.tokens) - 1 if draft else len(second) - 1)
        reuse.check(reuse.reply(second, kind, draft=draft), fresh, cached)


@EACH_KIND
def test_beside_streams_that_hold_the_blocks(reuse: Reuse, kind: str) -> None:
    shared = prompt(1, 130)
    prompts = [(*shared[:size], 5, 6) for size in (63, 64, 128, 130)]
    fresh = [reuse.fresh(tokens, kind) for tokens in prompts]
    alone = reuse.fresh(shared, "seeded", max_tokens=100)
    holder = reuse.ask(shared, "seeded", draft=False, max_tokens=100)
    assert holder.started.wait(20)
    for receiver, tokens, other in zip([reuse.ask(tokens, kind) for tokens in prompts], prompts, fresh, strict=True):
        reuse.check(receiver, other, whole_pages(len(tokens) - 2))
    reuse.check(holder, alone, 0)


def test_after_a_cancelled_neighbour(reuse: Reuse) -> None:
    tokens, gone = prompt(2, 100), Receiver()
    started = threading.Event()

    def sink(event: Any) -> None:
        gone(event)
        started.set()

    ticket = reuse.engine.submit(Generation("gone", tokens, 150, KINDS["greedy"], ignore_eos=True), sink)
    assert started.wait(20)
    ticket.cancel()
    gone.wait()
    longer = (*tokens, *gone.tokens, 9)
    fresh = reuse.fresh(longer, "penalised")
    reuse.check(reuse.reply(longer, "penalised"), fresh, whole_pages(len(longer) - 2))


def test_an_engine_that_keeps_nothing_says_the_same(backend: TargetBackend, reuse: Reuse) -> None:
    tokens = prompt(5, 129)
    kept = [reuse.reply(tokens, "logprobs") for _ in range(2)][1]
    assert kept.wait().stats.cached_tokens == 128
    reuse.engine.close()
    reuse.engine = reuse.start(prompt_pages=0)
    for _ in range(2):
        reuse.check(reuse.reply(tokens, "logprobs"), kept, 0)


def test_salts_share_nothing(reuse: Reuse) -> None:
    replies = [reuse.reply(prompt(3, 100), "greedy", cache_salt=salt) for salt in ("a", "b", "a")]
    assert [reply.wait().stats.cached_tokens for reply in replies] == [0, 0, 64]


def test_more_prompts_than_are_kept(reuse: Reuse) -> None:
    prompts = [prompt(100 + number, 129) for number in range(KEPT)]
    for tokens in (*prompts, *prompts):
        assert reuse.reply(tokens, "greedy", max_tokens=2).wait().stats.cached_tokens == 0
    reuse.check(reuse.reply(prompts[-1], "greedy"), reuse.fresh(prompts[-1], "greedy"), 128)


def test_a_missing_history_is_seen(reuse: Reuse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: penalties do not see the tokens whose rows were reused."""
    tokens, other = prompt(129, 129), prompt(4, 129)
    fresh = reuse.fresh(tokens, "penalised")
    reuse.reply(tokens, "greedy")
    reuse.reply(other, "greedy")  # leaves another history in the lane
    monkeypatch.setattr("tfjax.engine.target.set_history", lambda tables, lane, tokens: tables)
    unseen = reuse.reply(tokens, "penalised")
    assert unseen.wait().stats.cached_tokens == 128
    assert unseen.tokens != fresh.tokens


def test_reuse_compiles_nothing(reuse: Reuse, compiled: int) -> None:
    """Also after all the other tests of this file."""
    for _ in range(2):
        reuse.reply(prompt(6, 140), "penalised")
    assert compiles() == compiled
