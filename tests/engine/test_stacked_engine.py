"""A model in stacked form through the whole engine: the buckets of the kernels, the operators of the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.drafters import KnowingProposer
from tests.engine.drafters.pair import PROMPTS
from tests.engine.drafters.spark_pair import TARGET, random_spark, started_spark, tapped_target
from tests.engine.drafters.spark_stage import LONG, Stage
from tests.engine.drafters.spark_stage import MEMORY as SPARK_MEMORY
from tests.engine.drafters.test_drafted_engine import CHEAP, KINDS
from tests.engine.drafters.test_dspark_engine import ask, engine_of, serial
from tests.engine.scripted_engine import ByteTokenizer, Receiver
from tests.models.tiny import TINY
from tests.models.tiny_stacked import loaded_stacked
from tfjax.engine import load
from tfjax.engine.api import Generation, Sampling
from tfjax.engine.engine import Engine, Served
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.target import TargetBackend
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MEMORY = MemoryPlan(256, False, 4, 32, cache_bytes=0, weight_bytes=0, budget_bytes=0)
LENGTH = 40
ASKED = [(prompt, sampling) for sampling in KINDS.values() for prompt in PROMPTS]


@pytest.fixture(scope="module")
def target() -> TargetBackend:
    model = loaded_stacked(TINY, jnp.bfloat16)
    backend, report = load.start_backend(model, MEMORY, lambda phase, share: None)
    assert report.passed
    assert report.arithmetic == "row-invariant"
    backend.window_ms = {8: 5.0, 16: 5.2, 32: 5.4, 64: 5.6}
    return backend


class Known:
    """An engine whose proposer knows replies that were made before, and is right with probability 0.6."""

    def __init__(self, target: TargetBackend) -> None:
        settings = Settings(
            lanes=4, context=256, pages=32, page_rows=PAGE_ROWS, vocab_size=TINY.vocab, prompt_pages=16,
            draft_tokens=12, first_width=8,
        )  # fmt: skip
        tokenizer: Any = ByteTokenizer()
        self.replies: dict[tuple[Any, ...], list[int]] = {}
        self.engine = Engine(target, settings, Served("tiny", tokenizer, ()), proposer=self._proposer)
        self._salt = 0

    def _proposer(self, request: Request) -> Any:
        known = self.replies.get((request.prompt, request.sampling), [])
        return KnowingProposer(known, len(request.prompt), TINY.vocab)

    def ask(self, asked: tuple[Sequence[int], Sampling], *, draft: bool = True, salt: str | None = None) -> Receiver:
        receiver, self._salt = Receiver(), self._salt + 1
        prompt, sampling = asked
        apart = f"own {self._salt}" if salt is None else salt
        generation = Generation("r", tuple(prompt), LENGTH, sampling, ignore_eos=True, draft=draft, cache_salt=apart)
        self.engine.submit(generation, receiver)
        return receiver

    def alone(self, asked: tuple[Sequence[int], Sampling], **changes: Any) -> list[int]:
        receiver = self.ask(asked, **changes)
        receiver.wait()
        return receiver.tokens


@pytest.fixture(scope="module")
def known(target: TargetBackend) -> Iterator[Known]:
    """With the replies that each prompt gets alone and without drafts."""
    made = Known(target)
    for asked in ASKED:
        made.replies[tuple(asked[0]), asked[1]] = made.alone(asked, draft=False)
    yield made
    made.engine.close()


def wanted(known: Known, asked: tuple[Sequence[int], Sampling]) -> list[int]:
    return known.replies[tuple(asked[0]), asked[1]]


def test_drafted_alone(known: Known) -> None:
    drafted = accepted = 0
    for asked in ASKED:
        receiver = known.ask(asked)
        stats = receiver.wait().stats
        assert receiver.tokens == wanted(known, asked)
        drafted, accepted = drafted + stats.drafted, accepted + stats.accepted
    assert drafted > accepted > 0


def test_drafted_and_plain_side_by_side(known: Known) -> None:
    receivers = [known.ask(asked, draft=number % 3 > 0) for number, asked in enumerate(ASKED)]
    for asked, receiver in zip(ASKED, receivers, strict=True):
        receiver.wait()
        assert receiver.tokens == wanted(known, asked)


@pytest.mark.parametrize("kind", ["greedy", "seeded"])
def test_resumed_from_kept_pages(known: Known, kind: str) -> None:
    asked = (LONG, KINDS[kind])
    cold = known.alone(asked, draft=False)
    known.alone(asked, salt=f"kept {kind}")
    warm = known.ask(asked, salt=f"kept {kind}")
    assert warm.wait().stats.cached_tokens == len(LONG) // PAGE_ROWS * PAGE_ROWS
    assert warm.tokens == cold


def test_odd_chunks(known: Known, target: TargetBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = (LONG, KINDS["seeded"])
    whole = known.alone(asked)
    monkeypatch.setattr(target, "chunk_rows", (37,))
    other = Known(target)
    try:
        assert other.alone(asked) == whole
    finally:
        other.engine.close()


@pytest.fixture(scope="module")
def spark_stage() -> Stage:
    """The stacked target with its layers tapped, and a random DSpark drafter that shares embedding and head."""
    loaded = loaded_stacked(TARGET, np.float32)
    target, spark = tapped_target(loaded, SPARK_MEMORY), random_spark(loaded.module)
    return Stage(loaded, target, spark, started_spark(spark, target))


@pytest.mark.parametrize("held", [False, True], ids=["read", "held"])
def test_a_dspark_drafter_changes_no_token(spark_stage: Stage, held: bool) -> None:
    kinds = list(KINDS.values())
    asked = [(PROMPTS[number % 4], kinds[(number + number // 4) % 4]) for number in range(8)]
    with engine_of(spark_stage, grid=CHEAP, held=held) as engine:
        expected = serial(engine, asked)
        receivers = [ask(engine, *one) for one in asked]
        stats = [receiver.wait().stats for receiver in receivers]
    assert [receiver.tokens for receiver in receivers] == expected
    assert sum(one.drafted for one in stats) > 0


def test_a_dspark_drafter_reads_the_tapped_layers(spark_stage: Stage) -> None:
    """What it knows of a prompt in one forward is what it knows after several."""
    stream = spark_stage.on_lane(0)
    spark_stage.drafter = spark_stage.fresh()
    spark_stage.started(stream)
    assert spark_stage.knows(spark_stage.drafter, stream)
    spark_stage.drafter.release(stream)
