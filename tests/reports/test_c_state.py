"""C. State: roll-back, company, cancelled neighbours, limits."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.reports.conftest import MakeStage, MakeTiny
from tests.reports.probed import ProbedModel
from tests.reports.stage import MODES, Stage, babble
from tests.reports.tiny import ProbedTarget
from tests.server.helpers import COMPLETIONS, Call, until
from tests.stubs import Script, looping

COMPANY: dict[str, Script] = {
    name: looping(3 + number % 3, number, slip=5) if number % 3 == 2 else babble(number)
    for number, name in enumerate(("alpha", "bee", "gamma gamma", "d", "epsilon", "zeta zeta zeta", "eta", "th"))
}


def asks(count: int) -> list[dict[str, Any]]:
    return [{"prompt": name, "max_tokens": 20 + 3 * at} for at, name in enumerate(list(COMPANY)[:count])]


@pytest.mark.parametrize("k", range(9))
async def test_c1_a_rejected_draft_leaves_nothing_in_the_cache(make_stage: MakeStage, k: int) -> None:
    """C1. A state that could not be trimmed kept rejected drafts, and later text came from them.

    Drafts are right for the first k of eight; after each of 50 and more rounds the cache is that of the serial run.
    """
    model = ProbedModel()
    stage = make_stage(babble(3), "mixed", k=k, block=8, backend=model)
    answer = await stage.ask("hi", max_tokens=200)
    plain = await stage.ask("hi", max_tokens=200, draft=False)
    assert answer.same == plain.same
    assert answer.block["drafted"] > answer.block["accepted"] or k == 8
    assert model.wrong == []
    assert model.at_release[0] == model.at_release[1]
    assert model.commits == answer.block["rounds"] + plain.block["rounds"]
    assert model.commits > 200


@pytest.mark.parametrize("right", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("company", [1, 4])
async def test_c1_the_devices_cache_is_that_of_the_serial_run(
    make_tiny: MakeTiny, tiny: ProbedTarget, right: float, company: int
) -> None:
    """C1. The same on the paged cache of a real, if tiny, model: its committed keys and values, bit by bit.

    The 60 tokens end in another page than they begin in.
    """
    stage = make_tiny(right=right)
    asked: list[dict[str, Any]] = [
        {"prompt": "hello"[at:], "max_tokens": 60, "ignore_eos": True, "seed": 3} for at in range(company)
    ]
    tiny.at_release, tiny.probing = [], True
    try:
        plain = [await stage.ask(**ask, draft=False) for ask in asked]
        drafted = await stage.ask_all(asked)
    finally:
        tiny.probing = False
    assert [answer.same for answer in drafted] == [answer.same for answer in plain]
    assert all(answer.block["drafted"] for answer in drafted)
    before, after = tiny.at_release[:company], tiny.at_release[company:]
    assert sorted(before) == sorted(after)
    assert [length for length, _ in before] == [len(ask["prompt"]) + 59 for ask in asked]
    assert len(set(before)) == company


async def stays(stage: Stage, ask: dict[str, Any], leave_at_s: float) -> None:
    """Asks and leaves after a while, whatever has come by then."""
    call = Call(stage.app, COMPLETIONS, {"temperature": 0, "stream": True, **ask})
    await asyncio.sleep(leave_at_s)
    call.leave()
    await asyncio.wait_for(call.task, 10)


@pytest.mark.parametrize(
    "iterations", [pytest.param(15, id="short"), pytest.param(200, id="long", marks=pytest.mark.slow)]
)
async def test_c7_cancelled_neighbours_that_try_again_disturb_nobody(make_stage: MakeStage, iterations: int) -> None:
    """C7. Requests cancelled some milliseconds after their start and sent again spoilt lanes of others.

    Six lanes; two requests leave at random moments and are sent again at once.
    """
    chance = random.Random(7)
    stage = make_stage(COMPANY, "mixed", block=5, lanes=6, backend=ProbedModel())
    solo = [await stage.ask(**ask, draft=False) for ask in asks(6)]
    started = stage.engine.metrics()["rounds_total"]
    for _ in range(iterations):
        gone = chance.sample(range(6), 2)
        leaving = [
            asyncio.create_task(stays(stage, asks(6)[at] | {"max_tokens": 200}, chance.uniform(0, 0.02))) for at in gone
        ]
        others = [asks(6)[at] for at in range(6) if at not in gone]
        answers = await stage.ask_all([*others, *[asks(6)[at] for at in gone]])
        expected = [solo[at] for at in range(6) if at not in gone] + [solo[at] for at in gone]
        assert [answer.same for answer in answers] == [answer.same for answer in expected]
        await asyncio.gather(*leaving)
    await until(lambda: stage.engine.status().running + stage.engine.status().waiting == 0)
    assert stage.engine.metrics()["kv_cache_usage_perc"] == 0
    assert stage.engine.metrics()["rounds_total"] > started
    model = stage.engine._backend
    assert isinstance(model, ProbedModel)
    assert (model.wrong, model.lanes) == ([], {})


@pytest.mark.parametrize("mode", MODES)
async def test_c8_lanes_do_not_drift_into_each_other(make_stage: MakeStage, mode: str) -> None:
    """C8. With a drafter and several lanes, text of one drifted into another, or token 0 came without end."""
    stage = make_stage(COMPANY, mode, block=6)
    solo = [await stage.ask(**ask, draft=False) for ask in asks(8)]
    for lanes in (2, 4, 8):
        answers = await stage.ask_all(asks(lanes), stream=lanes == 4)
        assert [answer.same for answer in answers] == [answer.same for answer in solo[:lanes]]
        assert [answer.text.count("a") for answer in answers] == [answer.text.count("a") for answer in solo[:lanes]]


@pytest.mark.parametrize("mode", ["perfect", "mixed"])
@pytest.mark.parametrize("beyond", [0, 1, 4, 100])
async def test_c12_a_drafter_at_its_limit_stops_and_the_target_goes_on(
    make_stage: MakeStage, beyond: int, mode: str
) -> None:
    """C12. A sequence that passed the drafter's last position, or a block that passed the cache's end, was a crash.

    The drafter ends at 64 positions, the target at 256; without max_tokens the reply fills its very last one.
    """
    stage = make_stage({"p" * 60: babble(1), "beside": babble(2)}, mode, block=8, k=3, drafter_limit=64 + beyond)
    long: dict[str, Any] = {"prompt": "p" * 60}
    beside = {"prompt": "beside", "max_tokens": 90}
    solo = [await stage.ask(**ask, draft=False) for ask in (long, beside)]
    answers = await stage.ask_all([long, beside])
    assert [answer.same for answer in answers] == [answer.same for answer in solo]
    assert (answers[0].usage["total_tokens"], answers[0].reason) == (256, "length")
    assert answers[0].block["drafted"] <= 4 + beyond + (8 if mode == "mixed" else 0) * 20
    assert answers[1].block["accepted"] > 0


@pytest.mark.parametrize("block", [1, 5, 16])
async def test_c12_the_last_page_is_filled(make_stage: MakeStage, block: int) -> None:
    """C12. The cache has no page beyond the context, and the block would reach over it."""
    stage = make_stage(babble(1), "perfect", block=block, lanes=1, context=32, pages=8)
    for size in (1, 3, 4, 7, 31):
        answer = await stage.ask("p" * size)
        assert answer.same == (await stage.ask("p" * size, draft=False)).same
        assert answer.usage["total_tokens"] == 32
