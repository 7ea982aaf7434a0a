"""The one path from events to streams and whole replies: stop strings, split characters, logprobs, errors, pings."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest

from tests.server.byte_tokenizer import IM_END
from tests.server.conftest import MakeClient, MakeEngine
from tests.server.fake_engine import says
from tests.server.helpers import CHAT, COMPLETIONS, chunks, error_of, until
from tfjax.server.fields import IGNORED_HEADER

FAMILY = "👨‍👩‍👧‍👦"


async def both(client: httpx.AsyncClient, **ask: object) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The choice of a whole reply, and the choices of its stream's chunks."""
    ask = {"prompt": "hi", "seed": 3, "logprobs": 2} | ask
    whole = await client.post(COMPLETIONS, json=ask)
    assert whole.status_code == 200, whole.text
    parts = chunks(await client.post(COMPLETIONS, json=ask | {"stream": True}))
    return whole.json()["choices"][0], [part["choices"][0] for part in parts]


def text_of(parts: list[dict[str, Any]]) -> str:
    return "".join(str(part["text"]) for part in parts)


@pytest.mark.parametrize("per_round", [1, 2, 3, 5, 8, 16])
@pytest.mark.parametrize(
    ("text", "stop", "shown"),
    [
        ("one two END three", ["END"], "one two "),
        ("aaab", ["aab"], "a"),
        ("xyENyEND", ["END", "nope"], "xyENy"),
        ("ab" + FAMILY + "cd", [FAMILY[:3]], "ab"),
        ("abc", ["zzzz", "c"], "ab"),
        ("STOP", ["STOP"], ""),
    ],
)
async def test_stop_strings_end_text_logprobs_and_stream_alike(
    make_client: MakeClient, make_engine: MakeEngine, per_round: int, text: str, stop: list[str], shown: str
) -> None:
    client = make_client(make_engine(says(text), per_round=per_round))
    whole, parts = await both(client, stop=stop)
    assert (whole["text"], whole["finish_reason"]) == (shown, "stop")
    assert text_of(parts) == shown
    assert parts[-1]["finish_reason"] == "stop"
    emitted = next(
        count for count in range(len(text.encode()) + 1) if any(s.encode() in text.encode()[:count] for s in stop)
    )
    assert len(whole["logprobs"]["tokens"]) == emitted
    assert sum(len(part["logprobs"]["tokens"]) for part in parts if part["logprobs"]) == emitted


async def test_a_long_stop_string_holds_nothing_back_that_cannot_be_its_start(
    make_client: MakeClient, make_engine: MakeEngine
) -> None:
    client = make_client(make_engine(says("abcd"), per_round=1))
    _, parts = await both(client, stop=["a very long stop string"])
    assert [part["text"] for part in parts] == ["ab", "c", "d", ""]


@pytest.mark.parametrize("per_round", range(1, 9))
async def test_split_characters_never_show_as_replacement(
    make_client: MakeClient, make_engine: MakeEngine, per_round: int
) -> None:
    text = f"a漢{FAMILY}é!"
    client = make_client(make_engine(says(text), per_round=per_round))
    whole, parts = await both(client)
    assert whole["text"] == text
    assert text_of(parts) == text
    assert not any("\ufffd" in str(part["text"]) for part in parts)


async def test_invalid_and_cut_characters_flush_once(make_client: MakeClient, make_engine: MakeEngine) -> None:
    client = make_client(make_engine(says(b"a\xffb" + "漢".encode()), per_round=1))
    whole, parts = await both(client, max_tokens=5)
    assert whole["text"] == "a\ufffdb\ufffd"
    assert text_of(parts) == "a\ufffdb\ufffd"


@pytest.mark.parametrize("per_round", [1, 3, 7])
async def test_text_offsets_point_into_the_text(
    make_client: MakeClient, make_engine: MakeEngine, per_round: int
) -> None:
    client = make_client(make_engine(says("ab漢cd"), per_round=per_round))
    whole, parts = await both(client)
    logprobs = whole["logprobs"]
    assert logprobs["text_offset"] == [0, 1, 2, 2, 2, 3, 4, 5]
    assert logprobs["tokens"][2:5] == ["bytes:\\xe6", "bytes:\\xbc", "bytes:\\xa2"]
    assert logprobs["tokens"][-1] == "</s>"
    streamed = [offset for part in parts if part["logprobs"] for offset in part["logprobs"]["text_offset"]]
    assert streamed == logprobs["text_offset"]


async def test_deltas_are_never_empty_but_the_last(make_client: MakeClient, make_engine: MakeEngine) -> None:
    client = make_client(make_engine(says(FAMILY), per_round=1))
    _, parts = await both(client, logprobs=None)
    assert all(part["text"] for part in parts[:-1])


async def test_stop_tokens_and_ignore_eos(make_client: MakeClient, make_engine: MakeEngine) -> None:
    client = make_client(make_engine(says("ab", end=IM_END)))
    whole, _ = await both(client, logprobs=None, stop_token_ids=[98])
    assert (whole["text"], whole["finish_reason"]) == ("a", "stop")
    whole, _ = await both(client, logprobs=None, ignore_eos=True, max_tokens=6)
    assert (whole["text"], whole["finish_reason"]) == ("ab", "length")


async def test_silence_is_filled_with_pings(make_client: MakeClient, make_engine: MakeEngine) -> None:
    gate = threading.Semaphore(0)
    client = make_client(make_engine(gate=gate), ping_s=0.02)
    asking = asyncio.create_task(client.post(COMPLETIONS, json={"prompt": "hi", "max_tokens": 2, "stream": True}))
    await asyncio.sleep(0.15)
    gate.release(100)
    reply = await asking
    assert reply.text.startswith(": ping\n\n: ping\n\n")
    assert "".join(part["choices"][0]["text"] for part in chunks(reply)) == "He"


async def test_an_engine_error_is_500_without_its_text(make_client: MakeClient, make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.fail_with = "nan in lane 3"
    client = make_client(engine)
    for ask in ({"prompt": "hi"}, {"prompt": "hi", "stream": True}, {"prompt": "hi", "n": 3}):
        reply = await client.post(COMPLETIONS, json=ask)
        assert reply.status_code == 500
        assert error_of(reply)["type"] == "server_error"
        assert "nan" not in reply.text
        assert "secret" not in reply.text
    engine.fail_with = None
    assert (await client.post(COMPLETIONS, json={"prompt": "hi"})).status_code == 200


async def test_an_error_after_the_stream_opened_is_an_event_and_then_done(
    make_client: MakeClient, make_engine: MakeEngine
) -> None:
    gate = threading.Semaphore(1)
    engine = make_engine(says("x", end=None), gate=gate, per_round=1)
    client = make_client(engine)
    asking = asyncio.create_task(
        client.post(CHAT, json={"messages": [{"role": "user", "content": "x"}], "stream": True})
    )
    await until(lambda: engine.rounds == 1)
    engine.fail_with = "boom"
    gate.release()
    parts = chunks(await asking)
    assert parts[0]["choices"][0]["delta"]["role"] == "assistant"
    assert parts[-1]["error"]["code"] == "internal_error"


async def test_a_full_queue_is_503_with_retry_after_and_leaves_nothing_behind(
    make_client: MakeClient, make_engine: MakeEngine
) -> None:
    engine = make_engine(gate=threading.Semaphore(0), parallel=1, max_queue=2)
    client = make_client(engine)
    reply = await client.post(COMPLETIONS, json={"prompt": "hi", "n": 8})
    assert reply.status_code == 503
    assert error_of(reply)["code"] == "queue_full"
    assert "--max-queue" in error_of(reply)["message"]
    assert int(reply.headers["retry-after"]) >= 1
    await until(lambda: engine.status().running + engine.status().waiting == 0)


@pytest.mark.parametrize("ping_s", [0.02, 15.0])
async def test_waiting_too_long_in_the_queue_is_503(
    make_client: MakeClient, make_engine: MakeEngine, ping_s: float
) -> None:
    gate = threading.Semaphore(0)
    engine = make_engine(gate=gate, parallel=1)
    client = make_client(engine, queue_wait_s=0.05, ping_s=ping_s)
    running = asyncio.create_task(client.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 2}))
    await until(lambda: engine.status().running == 1)
    reply = await asyncio.wait_for(client.post(COMPLETIONS, json={"prompt": "b"}), 5)
    assert reply.status_code == 503
    assert error_of(reply)["code"] == "queue_wait"
    assert "retry-after" in reply.headers
    await until(lambda: engine.status().waiting == 0)
    gate.release(100)
    assert (await running).status_code == 200


async def test_a_stopped_engine_is_503(make_client: MakeClient, make_engine: MakeEngine) -> None:
    engine = make_engine()
    client = make_client(engine)
    engine.close()
    reply = await client.post(COMPLETIONS, json={"prompt": "hi"})
    assert reply.status_code == 503
    assert error_of(reply)["code"] == "stopped"


async def test_unknown_fields_are_named_in_streams_too(client: httpx.AsyncClient) -> None:
    for stream in (False, True):
        reply = await client.post(COMPLETIONS, json={"prompt": "hi", "max_tokens": 1, "x_extra": 1, "stream": stream})
        assert reply.headers[IGNORED_HEADER] == "x_extra"
