"""The engine's backend on a tiny model with random weights: a mixed workload, drafted and plain, alone and together."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.engine.scripted_engine import ByteTokenizer, Receiver
from tests.models.tiny import TINY, random_llama
from tfjax.engine.api import Finished, Generation, Sampling
from tfjax.engine.buckets import Plan
from tfjax.engine.compiles import compiles
from tfjax.engine.engine import Engine, Served
from tfjax.engine.load import compile_buckets
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.step import Bucket, Step
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import LoadedModel
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.proposer import NOTHING, Proposal
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request
from tfjax.models.llama import FAMILY

LANES, CONTEXT, LENGTH, KEPT = 3, 256, 24, 20
MEMORY = MemoryPlan(CONTEXT, False, LANES, LANES * CONTEXT // PAGE_ROWS + KEPT, 0, 0, 0, prompt_pages=KEPT)
"""The tests of kept prompts have the same, and so the same programs, which then are compiled once. Here nothing is
kept."""
BUCKETS = (Bucket(4, 4, 4), Bucket(16, 16, 8))
PLAN = Plan("row-invariant", BUCKETS, (*BUCKETS, Bucket(128, 4, 128)))
KINDS = {
    "greedy": Sampling(temperature=0.0),
    "seeded": Sampling(temperature=0.8, top_p=0.95, seed=11),
    "filtered": Sampling(temperature=1.3, top_k=12, min_p=0.05, seed=2**63 + 5),
    "penalised": Sampling(temperature=0.0, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2),
    "biased": Sampling(temperature=0.7, seed=3, logit_bias=((5, 4.0), (9, -100.0)), min_tokens=6),
    "logprobs": Sampling(temperature=0.9, seed=4, logprobs=5),
}


class Knowing:
    """Drafts that are right with a fixed pattern: it knows the serial reply and errs at every third place."""

    def __init__(self, reply: list[int]):
        self.reply, self.done = reply, 0

    def extend(self, tokens: Any) -> None:
        self.done = 0

    def propose(self, most: int) -> Proposal:
        ahead = self.reply[self.done + 1 : self.done + 1 + most]
        wrong = [(token + (1 if (self.done + i) % 3 == 2 else 0)) % TINY.vocab for i, token in enumerate(ahead)]
        return Proposal(tuple(wrong), (0.9,) * len(wrong)) if wrong else NOTHING

    def pass_unread(self) -> bool:
        return False

    def observe(self, tokens: Any, drafted: int, alone: bool) -> None:
        self.done += len(tokens)


@dataclass(slots=True)
class Workload:
    """A compiled backend, and the serial replies by prompt and kind."""

    backend: TargetBackend
    serial: dict[tuple[tuple[int, ...], Sampling], Receiver]
    compiled: int

    def engine(self, *, drafts: bool) -> Engine:
        settings = Settings(
            lanes=LANES, context=CONTEXT, pages=MEMORY.pages - KEPT, page_rows=PAGE_ROWS, vocab_size=TINY.vocab,
            draft_tokens=7 if drafts else 0, first_width=7,
        )  # fmt: skip

        def proposer(request: Request) -> Any:
            return Knowing(self.serial[request.prompt, request.sampling].tokens)

        tokenizer: Any = ByteTokenizer()
        return Engine(self.backend, settings, Served("tiny", tokenizer, ()), proposer=proposer)


def prompt(kind: int, size: int) -> tuple[int, ...]:
    return tuple(int(token) for token in np.random.default_rng(kind).integers(0, TINY.vocab, size))


def ask(engine: Engine, sampling: Sampling, tokens: tuple[int, ...], *, draft: bool = True) -> Receiver:
    receiver = Receiver()
    asked = Generation("x", tokens, LENGTH, sampling, ignore_eos=True, stop_token_ids=(7,), draft=draft)
    engine.submit(replace(asked, stop_token_ids=() if sampling.min_tokens == 0 else (7,)), receiver)
    return receiver


JOBS = [
    (sampling, prompt(i, size))
    for i, (sampling, size) in enumerate(zip(KINDS.values(), (1, 60, 63, 64, 65, 140), strict=True))
]


@pytest.fixture(scope="module")
def workload() -> Workload:
    model = LoadedModel(FAMILY, TINY, random_llama(TINY, jnp.bfloat16), jnp.bfloat16)
    backend = TargetBackend(model, Step(model.module), PLAN, MEMORY)
    compile_buckets(backend, lambda phase, share: None)
    made = Workload(backend, {}, compiles())
    engine = made.engine(drafts=False)
    for sampling, tokens in JOBS:
        receiver = ask(engine, sampling, tokens, draft=False)
        finished = receiver.wait()
        assert finished.reason in ("length", "stop"), finished.error
        made.serial[tokens, sampling] = receiver
    engine.close()
    return made


def hash_of(receiver: Receiver) -> str:
    finished: Finished = receiver.wait()
    assert finished.error is None, finished.error
    return finished.stats.token_sha256


def test_replies_are_no_trivial_loops(workload: Workload) -> None:
    assert len({hash_of(receiver) for receiver in workload.serial.values()}) == len(JOBS)
    assert all(len(set(receiver.tokens)) > 1 for receiver in workload.serial.values())


@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize("draft", [False, True], ids=["plain", "drafted"])
def test_every_reply_is_the_serial_one(workload: Workload, together: bool, draft: bool) -> None:
    engine = workload.engine(drafts=True)
    drafted = accepted = 0
    receivers = []
    for sampling, tokens in JOBS:
        receivers.append(ask(engine, sampling, tokens, draft=draft))
        if not together:
            receivers[-1].wait()
    for (sampling, tokens), receiver in zip(JOBS, receivers, strict=True):
        serial = workload.serial[tokens, sampling]
        assert receiver.wait().stats.token_sha256 == hash_of(serial)
        assert [event.logprobs for event in receiver.events if event.logprobs] == [] or sampling.logprobs is not None
        assert logprobs_of(receiver) == logprobs_of(serial)
        drafted += receiver.wait().stats.drafted
        accepted += receiver.wait().stats.accepted
    engine.close()
    assert (accepted > 0) == draft
    assert (drafted > accepted) == draft


def logprobs_of(receiver: Receiver) -> list[Any]:
    return [entry for event in receiver.events for entry in event.logprobs or ()]


def test_a_cancelled_neighbour_leaves_no_trace(workload: Workload) -> None:
    engine = workload.engine(drafts=True)
    sampling, tokens = JOBS[1]
    started = threading.Event()
    ticket = engine.submit(
        Generation("gone", prompt(77, 100), 100, KINDS["seeded"], draft=False), lambda _: started.set()
    )
    receiver = ask(engine, sampling, tokens)
    assert started.wait(20)
    ticket.cancel()
    assert hash_of(receiver) == hash_of(workload.serial[tokens, sampling])
    after = ask(engine, *JOBS[4])
    assert hash_of(after) == hash_of(workload.serial[JOBS[4][1], JOBS[4][0]])
    engine.close()


def test_stop_tokens_wait_for_min_tokens(workload: Workload) -> None:
    sampling, tokens = JOBS[4]
    reply = workload.serial[tokens, sampling].tokens
    assert 7 not in reply[: sampling.min_tokens]
    assert 9 not in reply


def test_logprobs_fit_their_tokens(workload: Workload) -> None:
    sampling, tokens = JOBS[5]
    receiver = workload.serial[tokens, sampling]
    entries = logprobs_of(receiver)
    assert [entry.token for entry in entries] == receiver.tokens
    for entry in entries:
        assert len(entry.top) == 5
        values = [value for _, value in entry.top]
        assert values == sorted(values, reverse=True)
        assert entry.logprob <= values[0] < 0
        assert dict(entry.top).get(entry.token, entry.logprob) == entry.logprob


def test_serving_compiles_nothing(workload: Workload) -> None:
    """Also after all the other tests of this file."""
    engine = workload.engine(drafts=True)
    for receiver in [ask(engine, sampling, tokens) for sampling, tokens in JOBS]:
        receiver.wait()
    engine.close()
    assert compiles() == workload.compiled
