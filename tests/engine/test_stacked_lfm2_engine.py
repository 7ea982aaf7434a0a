"""An LFM2 with experts in stacked form through the whole engine: the kernels' buckets, the reference's operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from tests.engine.scripted_engine import Receiver
from tests.engine.test_lfm2_engine import JOBS, KEPT, MEMORY, Stage
from tests.models.tiny_lfm2 import MOE
from tests.models.tiny_stacked import KERNELS
from tests.models.tiny_stacked_lfm2 import loaded_stacked
from tfjax.config import ServeConfig
from tfjax.engine import load, weights
from tfjax.engine.api import Generation, Sampling
from tfjax.engine.buckets import Plan, kernel_plan
from tfjax.engine.drafters.assets import ASSETS
from tfjax.engine.engine import Engine
from tfjax.kernels.conv_step import ConvState
from tfjax.kernels.paged_attention import PAGE_ROWS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SOME = JOBS[2:9:2]
"""Prompts of 3 to 129 tokens, greedy and seeded."""


def few_widths(tile_rows: int) -> Plan:
    """The kernels' buckets that these windows and prompts take; the others would only be compiled."""
    plan = kernel_plan(tile_rows)
    verify = plan.verify[:2]
    return replace(plan, verify=verify, prompt=(*verify, plan.prompt[-2]))


@pytest.fixture(scope="module")
def stage() -> Stage:
    """Proved as at every start, with the replies that each prompt gets alone and without drafts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "kernel_plan", few_widths)
        backend, report = load.start_backend(loaded_stacked(MOE, jnp.bfloat16), MEMORY, lambda phase, share: None)
    assert report.passed
    assert backend.plan == few_widths(32)
    made = Stage(backend)
    engine = made.engine()
    for job in SOME:
        receiver = made.reply(engine, job, draft=False)
        made.plain[job], made.replies[job] = receiver.wait().stats.token_sha256, receiver.tokens
    engine.close()
    return made


@pytest.fixture
def engine(stage: Stage) -> Iterator[Engine]:
    opened = stage.engine(KEPT)
    yield opened
    opened.close()


def test_drafts_change_nothing(stage: Stage, engine: Engine) -> None:
    stage.rejected.clear()
    for job in SOME:
        assert stage.same(stage.reply(engine, job), job)
    assert len(stage.rejected) > 3


def test_company_changes_nothing(stage: Stage, engine: Engine) -> None:
    asked = [(job, stage.ask(engine, job, draft=number % 2 > 0)) for number, job in enumerate(SOME * 2)]
    assert [job for job, receiver in asked if not stage.same(receiver, job)] == []


def test_prompts_resumed_from_kept_pages(stage: Stage, engine: Engine) -> None:
    for job in [job for job in SOME if len(job[0]) > PAGE_ROWS]:
        assert stage.same(stage.reply(engine, job, cache_salt="a"), job)
        again = stage.reply(engine, job, cache_salt="a")
        assert again.wait().stats.cached_tokens == (len(job[0]) - 1) // PAGE_ROWS * PAGE_ROWS
        assert stage.same(again, job)


def test_what_earlier_streams_left_does_not_matter(stage: Stage) -> None:
    """Even if all of it is no number."""
    state = stage.backend.state
    spoilt = jax.tree.map(lambda pool: jnp.full_like(pool, jnp.nan), state.cache)
    stage.backend.state = state._replace(cache=spoilt)
    engine = stage.engine()
    for job in SOME:
        assert stage.same(stage.reply(engine, job), job)
    engine.close()


def test_a_state_one_layer_off_changes_replies(stage: Stage) -> None:
    """Of convolutions, while a stream runs: the forward is the only one that knows whose it is."""
    step = stage.backend.step

    class Rolling:
        taps, give_back = step.taps, step.give_back

        def __call__(self, bucket: object, state: object, *rest: object) -> object:
            stepped = step(bucket, state, *rest)
            rings, tails = stepped.state.cache.conv
            conv = ConvState(jnp.roll(rings, 1, 0), tails)
            return stepped._replace(state=stepped.state._replace(cache=replace(stepped.state.cache, conv=conv)))

    stage.backend.step = Rolling()
    engine = stage.engine()
    try:
        assert not all(stage.same(stage.reply(engine, job, draft=False), job) for job in SOME)
    finally:
        engine.close()
        stage.backend.step = step


def test_the_asset_with_its_dspark_drafter(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the features of tapped layers, whether they repeat or not, and shares embedding and head."""
    monkeypatch.setattr(load, "kernel_plan", few_shapes)
    monkeypatch.setattr(weights, "choose_kernels", lambda *_: KERNELS)
    engine = load.load_engine(ServeConfig(model=str(ASSETS / "lfm2-moe-code"), context=256, parallel=2), ignore)
    assert KERNELS.reason in str(engine.capabilities()["kernels"])
    drafted = 0
    for sampling in (Sampling(temperature=0.0), Sampling(temperature=0.8, seed=3)):
        replies = []
        for draft in (False, True):
            receiver = Receiver()
            asked = Generation("x", tuple(range(1, 41)), 48, sampling, ignore_eos=True, draft=draft)
            engine.submit(asked, receiver)
            drafted += receiver.wait().stats.drafted
            replies.append(receiver.tokens)
        assert replies[0] == replies[1]
    engine.close()
    assert drafted > 0


def few_shapes(tile_rows: int) -> Plan:
    verify = few_widths(tile_rows).verify
    return Plan("row-invariant", verify, verify)


def ignore(phase: str, share: float) -> None:
    """Nobody looks."""
