"""E. Requests at the edge, and clients that leave the real engine at every stage."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.reports.alphabet import TEMPLATE, Alphabet
from tests.reports.conftest import MakeStage
from tests.reports.stage import MODES, Stage, babble
from tests.reports.stepped import SteppedModel
from tests.server.helpers import CHAT, COMPLETIONS, Call, until
from tfjax.config import ServeConfig
from tfjax.serve import parser
from tfjax.sources import resolve

ROOT = Path(__file__).parents[2]

EMPTY: list[tuple[str, dict[str, Any], int]] = [
    (COMPLETIONS, {"prompt": ""}, 400),
    (COMPLETIONS, {"prompt": []}, 400),
    (COMPLETIONS, {"prompt": [[]]}, 400),
    (COMPLETIONS, {"prompt": ["a", ""]}, 400),
    (CHAT, {"messages": []}, 400),
    (CHAT, {"messages": [{"role": "user", "content": None}]}, 400),
    (CHAT, {"messages": [{"role": "user", "content": ""}]}, 200),
    (CHAT, {"messages": [{"role": "assistant", "content": None}]}, 200),
]


@pytest.mark.parametrize("parallel", [1, 4])
async def test_e1_empty_prompts_leave_the_engine_working(make_stage: MakeStage, parallel: int) -> None:
    """E1. An empty prompt hung, and every request after it hung too."""
    stage = make_stage(babble(1), "mixed", tokenizer=Alphabet(TEMPLATE), lanes=parallel)
    expected = await stage.ask("hi", max_tokens=9, draft=False)
    for route, body, status in EMPTY:
        for stream in (False, True):
            asked = body | {"max_tokens": 3, "stream": stream}
            reply = await asyncio.wait_for(stage.client.post(route, json=asked), 10)
            assert reply.status_code == status, (body, reply.text)
            assert (await asyncio.wait_for(stage.ask("hi", max_tokens=9), 10)).same == expected.same
    assert (stage.engine.status().running, stage.engine.status().waiting) == (0, 0)


class Leaving:
    """A stage on a device that the test steps, and a client that leaves."""

    def __init__(self, make_stage: MakeStage, **options: Any) -> None:
        self.model = SteppedModel()
        self.stage: Stage = make_stage(babble(4), backend=self.model, **options)

    def call(self, *, stream: bool, prompt: str = "hi", max_tokens: int = 200) -> Call:
        body = {"prompt": prompt, "stream": stream, "max_tokens": max_tokens, "temperature": 0}
        return Call(self.stage.app, COMPLETIONS, body)

    async def steps(self, count: int) -> None:
        """Lets the device do so many steps more, and waits until it has."""
        target = self.model.taken + count
        self.model.allow(count)
        await until(lambda: self.model.taken == target)

    async def leaves(self, call: Call) -> None:
        """The client goes away; its request has to end without another step of the device."""
        call.leave()
        await asyncio.wait_for(call.task, 5)

    async def idle(self) -> None:
        await until(lambda: self.stage.engine.status().running + self.stage.engine.status().waiting == 0)
        assert self.model.lanes == {}
        assert self.stage.engine.metrics()["kv_cache_usage_perc"] == 0
        assert self.stage.service.in_flight == 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", ["mixed", "empty"])
async def test_e2_leaving_while_tokens_come_frees_the_lane_within_a_round(
    make_stage: MakeStage, stream: bool, mode: str
) -> None:
    """E2. A client left and the server went on to the end of its reply, mostly for replies that do not stream.

    The round under way may end (and the one queued behind it, which a lone plain stream runs ahead); no other begins.
    """
    leaving = Leaving(make_stage, mode=mode, block=4)
    call = leaving.call(stream=stream)
    await leaving.steps(6)
    forwards = len(leaving.model.forwards)
    await leaving.leaves(call)
    await leaving.steps(1)
    await leaving.idle()
    assert len(leaving.model.forwards) <= forwards + 1
    assert await leaving.stage.metric("client_disconnections_total") == 1
    for name in ("request_success_total", "prompt_tokens_total", "spec_decode_num_accepted_tokens_total"):
        assert await leaving.stage.metric(name) == 0
    if stream:
        delivered = await leaving.stage.metric("generation_tokens_total")
        assert delivered == sum(map(len, _texts(call.body))) > 0


def _texts(body: bytes) -> list[str]:
    return [part.partition(b'"')[0].decode() for part in body.split(b'"text":"')[1:]]


@pytest.mark.parametrize("stream", [False, True])
async def test_e2_leaving_in_the_prompt_frees_the_lane_within_a_chunk(make_stage: MakeStage, stream: bool) -> None:
    """E2. A client that left while its prompt was read had it read to the end."""
    leaving = Leaving(make_stage, mode="mixed")
    call = leaving.call(stream=stream, prompt="p" * 200, max_tokens=9)
    await leaving.steps(2)
    await leaving.leaves(call)
    await leaving.steps(1)
    await leaving.idle()
    assert [chunk[1:] for chunk in leaving.model.chunks] == [(0, 16), (16, 32), (32, 48)]
    assert leaving.model.calls["first"] == 0
    assert call.sent == []
    assert await leaving.stage.metric("client_disconnections_total") == 1
    assert await leaving.stage.metric("generation_tokens_total") == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_e2_leaving_the_queue_never_takes_a_lane(make_stage: MakeStage, stream: bool) -> None:
    """E2. A client that left the queue was served all the same when its turn came."""
    leaving = Leaving(make_stage, mode="mixed", lanes=1)
    first = leaving.call(stream=False, max_tokens=30)
    await leaving.steps(2)
    second, third = leaving.call(stream=stream, max_tokens=9), leaving.call(stream=False, max_tokens=9)
    await until(lambda: leaving.stage.engine.status().waiting == 2)
    await leaving.steps(1)
    await until(lambda: leaving.stage.engine._lanes.waiting == 2)
    await leaving.leaves(second)
    await leaving.steps(1)
    await until(lambda: leaving.stage.engine.status().waiting == 1)
    leaving.model.allow(1000)
    await asyncio.wait_for(asyncio.gather(first.task, third.task), 10)
    assert len(leaving.model.begun) == 2
    assert b'"completion_tokens":30' in first.body
    assert b'"completion_tokens":9' in third.body
    assert await leaving.stage.metric("client_disconnections_total") == 1
    await leaving.idle()


@pytest.mark.parametrize("stream", [False, True])
async def test_e2_leaving_with_several_choices_at_several_stages(make_stage: MakeStage, stream: bool) -> None:
    """E2. One request of four choices on two lanes: some decode, some wait, and all of them go."""
    leaving = Leaving(make_stage, mode="mixed", lanes=2)
    body = {"prompt": "hi", "n": 4, "seed": 1, "stream": stream, "max_tokens": 200}
    call = Call(leaving.stage.app, COMPLETIONS, body)
    await leaving.steps(5)
    await leaving.leaves(call)
    await leaving.steps(1)
    await leaving.idle()
    assert len(leaving.model.begun) == 2
    assert await leaving.stage.metric("client_disconnections_total") == 1


async def test_e7_every_lane_of_a_batch_drafts(make_stage: MakeStage) -> None:
    """E7. With more than one request at a time drafting was off, and nothing said so."""
    stage = make_stage({name: babble(at) for at, name in enumerate("abcd")}, "perfect", block=3, lanes=4)
    answers = await stage.ask_all([{"prompt": name, "max_tokens": 61} for name in "abcd"])
    for answer in answers:
        assert answer.block["accepted"] == answer.block["drafted"]
        assert (answer.tokens - 1) / answer.block["rounds"] > 3
    assert await stage.metric("spec_decode_num_draft_tokens_total") == sum(a.block["drafted"] for a in answers)
    assert await stage.metric("spec_decode_num_drafts_total") == sum(a.block["rounds"] for a in answers)


def test_e9_no_setting_is_dead() -> None:
    """E9. New flags were parsed and never handed on, so that nothing changed but the resolved configuration.

    Every field is read somewhere outside the configuration; two do their work there, one of them through `drafts`.
    """
    read = {"insecure", "no_drafts"}
    for file in (ROOT / "tfjax").rglob("*.py"):
        if file.name == "config.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("config"):
                read.add(node.attr)
    assert {field.name for field in dataclasses.fields(ServeConfig)} | {"drafts"} <= read


@pytest.mark.parametrize("mode", [*MODES, None])
async def test_e10_one_lane_and_sixteen_drafts(make_stage: MakeStage, mode: str | None) -> None:
    """E10. Few sequences and many drafts: the budget of a round held none of them, and nothing was ever scheduled."""
    config = resolve(ServeConfig, parser().parse_args(["--parallel", "1", "--draft-tokens", "16"]), {})
    stage = make_stage(babble(2), mode, lanes=config.parallel, block=config.draft_tokens)
    expected = await stage.ask("hi", max_tokens=40, draft=False)
    answers = await asyncio.wait_for(stage.ask_all([{"prompt": "hi", "max_tokens": 40}] * 3), 20)
    assert [answer.same for answer in answers] == [expected.same] * 3
