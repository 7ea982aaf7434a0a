"""POST /v1/chat/completions."""

from __future__ import annotations

import httpx
import pytest

from tests.server.byte_tokenizer import CHATML, ByteTokenizer
from tests.server.conftest import MakeClient, MakeEngine
from tests.server.helpers import CHAT, chunks, error_of

HELLO = [{"role": "user", "content": "Hi"}]


async def test_a_whole_reply(client: httpx.AsyncClient) -> None:
    reply = await client.post(CHAT, json={"messages": HELLO, "max_tokens": 5, "seed": 1})
    assert reply.status_code == 200
    body = reply.json()
    assert body["object"] == "chat.completion"
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"content": "Hello", "role": "assistant", "refusal": None},
            "finish_reason": "length",
            "logprobs": None,
        }
    ]
    assert body["usage"]["completion_tokens"] == 5
    assert body["timings"]["predicted_n"] == 5
    assert body["tfjax"]["seed"] == 1


async def test_the_template_makes_the_prompt(make_client: MakeClient, make_engine: MakeEngine) -> None:
    engine = make_engine(tokenizer=ByteTokenizer(add_bos=True))
    messages = [{"role": "developer", "content": "Be brief."}, *HELLO, {"role": "assistant", "content": None}]
    messages += [{"role": "tool", "content": [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]}]
    ask = {"messages": messages, "max_tokens": 1}
    assert (await make_client(engine).post(CHAT, json=ask)).status_code == 200
    text = (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
    )
    text += "<|im_start|>tool\n42<|im_end|>\n<|im_start|>assistant\n"
    assert list(engine.submitted[0].prompt) == ByteTokenizer().encode(text)


async def test_a_stream_says_role_content_finish_usage_and_done(client: httpx.AsyncClient) -> None:
    ask = {"messages": HELLO, "max_tokens": 5, "seed": 1, "logprobs": True, "top_logprobs": 2}
    whole = (await client.post(CHAT, json=ask)).json()
    reply = await client.post(CHAT, json=ask | {"stream": True, "stream_options": {"include_usage": True}})
    parts = chunks(reply)
    assert {part["object"] for part in parts} == {"chat.completion.chunk"}
    assert len({part["id"] for part in parts}) == 1
    assert parts[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    content = [part["choices"][0]["delta"].get("content", "") for part in parts[:-1]]
    assert "".join(content) == whole["choices"][0]["message"]["content"]
    assert parts[-2]["choices"][0]["finish_reason"] == "length"
    assert parts[-2]["tfjax"]["token_sha256"] == whole["tfjax"]["token_sha256"]
    assert (parts[-1]["choices"], parts[-1]["usage"]) == ([], whole["usage"])
    entries = [e for part in parts[:-1] if (lp := part["choices"][0]["logprobs"]) for e in lp["content"]]
    assert entries == whole["choices"][0]["logprobs"]["content"]
    assert len(entries) == 5


async def test_logprobs_have_openais_shape(client: httpx.AsyncClient) -> None:
    ask = {"messages": HELLO, "max_tokens": 1, "logprobs": True, "top_logprobs": 2}
    body = (await client.post(CHAT, json=ask)).json()
    assert body["choices"][0]["logprobs"] == {
        "content": [
            {
                "token": "H",
                "logprob": -0.25,
                "bytes": [72],
                "top_logprobs": [
                    {"token": "H", "logprob": -0.25, "bytes": [72]},
                    {"token": "a", "logprob": -3.0, "bytes": [97]},
                ],
            }
        ],
        "refusal": None,
    }


async def test_logprobs_without_alternatives(client: httpx.AsyncClient) -> None:
    body = (await client.post(CHAT, json={"messages": HELLO, "max_tokens": 2, "logprobs": True})).json()
    assert [entry["top_logprobs"] for entry in body["choices"][0]["logprobs"]["content"]] == [[], []]


async def test_top_logprobs_need_logprobs(client: httpx.AsyncClient) -> None:
    reply = await client.post(CHAT, json={"messages": HELLO, "top_logprobs": 2})
    assert error_of(reply)["param"] == "top_logprobs"
    assert (await client.post(CHAT, json={"messages": HELLO, "top_logprobs": 0, "max_tokens": 1})).status_code == 200


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        (None, "messages"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "king", "content": "x"}], "messages[0].role"),
        ([{"content": "x"}], "messages[0].role"),
        ([*HELLO, {"role": "user", "content": [{"type": "text"}]}], "messages[1].content[0].text"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "input_audio"}]}], "messages[0].content[0]"),
        ([{"role": "assistant", "tool_calls": [{"id": "1"}]}], "messages[0].tool_calls"),
        (["hi"], "messages[0]"),
        ("hi", "messages"),
    ],
)
async def test_messages_that_cannot_be_shown_are_named_and_the_next_request_works(
    client: httpx.AsyncClient, messages: object, param: str
) -> None:
    reply = await client.post(CHAT, json={"messages": messages})
    assert reply.status_code == 400
    assert error_of(reply)["param"] == param
    assert (await client.post(CHAT, json={"messages": HELLO, "max_tokens": 1})).status_code == 200


async def test_empty_content_is_generated_from_the_templates_tokens(client: httpx.AsyncClient) -> None:
    reply = await client.post(CHAT, json={"messages": [{"role": "user", "content": ""}], "max_tokens": 1})
    assert reply.status_code == 200
    assert reply.json()["usage"]["prompt_tokens"] > 0


async def test_a_model_without_a_template_says_so(make_client: MakeClient, make_engine: MakeEngine) -> None:
    client = make_client(make_engine(tokenizer=ByteTokenizer(None)))
    reply = await client.post(CHAT, json={"messages": HELLO})
    assert reply.status_code == 400
    assert error_of(reply)["code"] == "no_chat_template"
    assert "/v1/completions" in error_of(reply)["message"]


async def test_a_broken_template_does_not_keep_the_server_from_starting(
    make_client: MakeClient, make_engine: MakeEngine
) -> None:
    client = make_client(make_engine(tokenizer=ByteTokenizer("{% for %}")))
    assert error_of(await client.post(CHAT, json={"messages": HELLO}))["code"] == "no_chat_template"


async def test_a_template_that_refuses_is_400_with_its_reason(make_client: MakeClient, make_engine: MakeEngine) -> None:
    template = "{{ raise_exception('roles must alternate') }}"
    reply = await make_client(make_engine(tokenizer=ByteTokenizer(template))).post(CHAT, json={"messages": HELLO})
    assert reply.status_code == 400
    assert error_of(reply)["code"] == "template_refused"
    assert "roles must alternate" in error_of(reply)["message"]


async def test_a_template_that_never_ends_is_an_error_of_that_request_alone(
    make_client: MakeClient, make_engine: MakeEngine
) -> None:
    template = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
    client = make_client(make_engine(tokenizer=ByteTokenizer(template)))
    reply = await client.post(CHAT, json={"messages": HELLO})
    assert reply.status_code == 500
    assert error_of(reply)["code"] == "template_error"
    assert (await client.get("/health")).status_code == 200


async def test_max_completion_tokens(make_client: MakeClient, make_engine: MakeEngine) -> None:
    engine = make_engine()
    client = make_client(engine)
    assert (await client.post(CHAT, json={"messages": HELLO, "max_completion_tokens": 3})).status_code == 200
    assert engine.submitted[0].max_tokens == 3
    reply = await client.post(CHAT, json={"messages": HELLO, "max_completion_tokens": 3, "max_tokens": 4})
    assert error_of(reply)["param"] == "max_completion_tokens"


async def test_context_length_exceeded_names_messages(make_client: MakeClient, make_engine: MakeEngine) -> None:
    client = make_client(make_engine(context=30))
    for content, max_tokens in (("Hi", 200), ("x" * 100, None), ("x" * 10_000, None)):
        ask = {"messages": [{"role": "user", "content": content}], "max_tokens": max_tokens}
        error = error_of(await client.post(CHAT, json=ask))
        assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
        assert error["message"].startswith("This server's maximum context length is 30 tokens. ")


THINKING = CHATML + "{% if enable_thinking %}<think>{% endif %}{{ reasoning_effort }}"


async def test_template_variables(make_client: MakeClient, make_engine: MakeEngine) -> None:
    engine = make_engine(tokenizer=ByteTokenizer(THINKING))
    client = make_client(engine)
    kwargs = {"enable_thinking": True, "other": 3, "none": None}
    ask = {"messages": HELLO, "chat_template_kwargs": kwargs, "max_tokens": 1, "reasoning_effort": "low"}
    reply = await client.post(CHAT, json=ask)
    assert reply.status_code == 200
    assert engine.tokenizer.decode(engine.submitted[0].prompt).endswith("assistant\n<think>low")
    assert reply.headers["x-tfjax-ignored"] == "chat_template_kwargs.other"


@pytest.mark.parametrize(
    "name", ["tokenize", "messages", "tools", "add_generation_prompt", "chat_template", "bos_token"]
)
async def test_reserved_template_variables_are_refused(client: httpx.AsyncClient, name: str) -> None:
    ask = {"messages": HELLO, "chat_template_kwargs": {name: True}}
    reply = await client.post(CHAT, json=ask)
    assert reply.status_code == 400
    assert error_of(reply)["param"] == f"chat_template_kwargs.{name}"


async def test_template_variables_are_short_scalars(client: httpx.AsyncClient) -> None:
    for value in ([1], {"a": 1}, "x" * 5000):
        reply = await client.post(CHAT, json={"messages": HELLO, "chat_template_kwargs": {"enable_thinking": value}})
        assert error_of(reply)["param"] == "chat_template_kwargs.enable_thinking"


async def test_reasoning_effort_is_refused_where_the_template_has_no_use_for_it(client: httpx.AsyncClient) -> None:
    reply = await client.post(CHAT, json={"messages": HELLO, "reasoning_effort": "high"})
    assert error_of(reply)["param"] == "reasoning_effort"
    assert (
        await client.post(CHAT, json={"messages": HELLO, "reasoning_effort": "none", "max_tokens": 1})
    ).status_code == 200


async def test_choices_of_a_chat(client: httpx.AsyncClient) -> None:
    ask = {"messages": HELLO, "n": 3, "seed": 8, "max_tokens": 4}
    body = (await client.post(CHAT, json=ask)).json()
    assert [choice["tfjax"]["seed"] for choice in body["choices"]] == [8, 9, 10]
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    parts = chunks(await client.post(CHAT, json=ask | {"stream": True}))
    last = {part["choices"][0]["index"]: part["tfjax"]["seed"] for part in parts if "tfjax" in part}
    assert last == {0: 8, 1: 9, 2: 10}
    for index in range(3):
        deltas = [part["choices"][0]["delta"] for part in parts if part["choices"][0]["index"] == index]
        assert deltas[0] == {"role": "assistant", "content": ""}
        assert "".join(delta.get("content", "") for delta in deltas) == "Hell"
