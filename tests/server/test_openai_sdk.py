"""The contract as the official SDK sees it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import openai
import pytest

from tests.server.conftest import MakeEngine, MakeServer
from tests.server.fake_engine import says
from tests.server.live import LiveServer


@pytest.fixture
def server(make_server: MakeServer) -> LiveServer:
    return make_server(api_key=("sk-test",))


@pytest.fixture
def sdk(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="sk-test", max_retries=0, timeout=10) as client:
        yield client


def test_models(sdk: openai.OpenAI) -> None:
    models = sdk.models.list().data
    assert [model.id for model in models] == ["fake-1"]
    assert sdk.models.retrieve("fake-1").owned_by == "tfjax"


def test_chat(sdk: openai.OpenAI) -> None:
    reply = sdk.chat.completions.create(
        model="fake-1",
        messages=[{"role": "user", "content": "Hi"}],
        max_completion_tokens=5,
        seed=3,
        logprobs=True,
        top_logprobs=2,
        extra_body={"draft": False},
    )
    choice = reply.choices[0]
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "Hello", "length")
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert [entry.token for entry in choice.logprobs.content] == list("Hello")
    assert choice.logprobs.content[0].top_logprobs[0].token == "H"
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 5
    assert reply.usage.prompt_tokens_details is not None
    assert reply.model_extra is not None
    assert reply.model_extra["tfjax"]["drafted"] == 0
    assert reply.model_extra["timings"]["draft_n"] == 0


def test_chat_stream(sdk: openai.OpenAI) -> None:
    stream = sdk.chat.completions.create(
        model="fake-1",
        messages=[{"role": "user", "content": "Hi"}],
        stream=True,
        stream_options={"include_usage": True},
        logprobs=True,
    )
    parts = list(stream)
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(c.delta.content or "" for part in parts for c in part.choices) == "Hello, world! "
    assert parts[-2].choices[0].finish_reason == "stop"
    assert parts[-1].usage is not None
    assert parts[-1].usage.completion_tokens == 15
    entries = [e for part in parts for c in part.choices if c.logprobs for e in c.logprobs.content or []]
    assert len(entries) == 15


def test_the_sdks_stream_helper_folds_chunks_to_the_whole(sdk: openai.OpenAI) -> None:
    with sdk.chat.completions.stream(model="fake-1", messages=[{"role": "user", "content": "Hi"}]) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "Hello, world! "
    assert final.choices[0].finish_reason == "stop"


def test_completion(sdk: openai.OpenAI) -> None:
    reply = sdk.completions.create(model="fake-1", prompt=["a", "b"], max_tokens=4, logprobs=1, n=2)
    assert [choice.text for choice in reply.choices] == ["Hell"] * 4
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert (logprobs.tokens, logprobs.text_offset) == (list("Hell"), [0, 1, 2, 3])
    parts = list(sdk.completions.create(model="fake-1", prompt="a", max_tokens=4, stream=True))
    assert "".join(choice.text for part in parts for choice in part.choices) == "Hell"


def test_leaving_a_stream_early_frees_the_lane(make_server: MakeServer, make_engine: MakeEngine) -> None:
    server = make_server(make_engine(says("x", end=None), round_s=0.002))
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0)
    stream = client.chat.completions.create(model="fake-1", messages=[{"role": "user", "content": "Hi"}], stream=True)
    next(iter(stream))
    stream.close()
    client.close()
    server.wait_idle()
    assert list(server.engine.ended.values()) == ["cancelled"]


def test_errors_are_the_sdks_types(server: LiveServer, sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        sdk.completions.create(model="gpt-4", prompt="a")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        sdk.completions.create(model="fake-1", prompt="a", temperature=-1)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as long:
        sdk.completions.create(model="fake-1", prompt="a" * 5000)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as tools:
        sdk.chat.completions.create(
            model="fake-1",
            messages=[{"role": "user", "content": "Hi"}],
            tools=[{"type": "function", "function": {"name": "f"}}],
        )
    assert tools.value.param == "tools"
    with pytest.raises(openai.AuthenticationError):
        sdk.with_options(api_key="wrong").models.list()
    server.engine.fail_with = "boom"
    with pytest.raises(openai.InternalServerError):
        sdk.completions.create(model="fake-1", prompt="a")


def test_an_error_within_a_stream_is_raised(make_server: MakeServer, make_engine: MakeEngine) -> None:
    gate = threading.Semaphore(1)
    engine = make_engine(says("x", end=None), gate=gate)
    server = make_server(engine)
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0)
    stream = client.chat.completions.create(model="fake-1", messages=[{"role": "user", "content": "Hi"}], stream=True)
    parts = iter(stream)
    next(parts)
    engine.fail_with = "boom"
    gate.release(10)
    with pytest.raises(openai.APIError):
        list(parts)
    client.close()


def test_a_full_queue_is_retried_by_the_sdk(make_server: MakeServer, make_engine: MakeEngine) -> None:
    server = make_server(make_engine(parallel=1, max_queue=0, round_s=0.05))
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=3)
    texts: list[str] = []

    def ask() -> None:
        texts.append(client.completions.create(model="fake-1", prompt="a", max_tokens=9).choices[0].text)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
    client.close()
    assert texts == ["Hello, wo"] * 2
