"""Known fields that cannot be honoured, neutral values, and unknown fields."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest

from tests.server.helpers import CHAT, COMPLETIONS, error_of
from tfjax.server import schemas
from tfjax.server.fields import IGNORED_HEADER, RULES, ignored_header

TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
REFUSED: list[tuple[str, Any]] = [
    ("tools", [TOOL]),
    ("functions", [{"name": "f"}]),
    ("tool_choice", "required"),
    ("tool_choice", {"type": "function", "function": {"name": "f"}}),
    ("function_call", {"name": "f"}),
    ("parallel_tool_calls", "yes"),
    ("response_format", {"type": "json_object"}),
    ("response_format", {"type": "json_schema", "json_schema": {}}),
    ("guided_json", {}),
    ("guided_regex", "a+"),
    ("guided_choice", ["a"]),
    ("guided_grammar", "root ::= x"),
    ("structured_outputs", {"json": {}}),
    ("grammar", "root ::= x"),
    ("best_of", 2),
    ("best_of", -1),
    ("suffix", "tail"),
    ("echo", True),
    ("prompt_logprobs", 1),
    ("prompt_logprobs", 0),
    ("audio", {"voice": "x"}),
    ("modalities", ["text", "audio"]),
    ("priority", 1),
    ("return_token_ids", True),
    ("include_stop_str_in_output", True),
    ("skip_special_tokens", False),
    ("repeat_penalty", 1.1),
    ("n_predict", 5),
    ("use_beam_search", True),
    ("continue_final_message", True),
    ("chat_template", "{{ x }}"),
    ("thinking_budget", 100),
    ("allowed_token_ids", [1]),
    ("logits_processors", ["x"]),
]
NEUTRAL: dict[str, Any] = {
    "tools": [],
    "tool_choice": "none",
    "function_call": "auto",
    "functions": [],
    "parallel_tool_calls": True,
    "response_format": {"type": "text"},
    "best_of": 1,
    "suffix": "",
    "echo": False,
    "modalities": ["text"],
    "priority": 0,
    "store": True,
    "metadata": {"a": "b"},
    "user": "me",
    "service_tier": "auto",
    "skip_special_tokens": True,
    "use_beam_search": False,
    "length_penalty": 1.0,
}


@pytest.mark.parametrize(("field", "value"), REFUSED)
async def test_what_cannot_be_honoured_is_400(client: httpx.AsyncClient, field: str, value: Any) -> None:
    for route, ask in ((COMPLETIONS, {"prompt": "hi"}), (CHAT, {"messages": [{"role": "user", "content": "hi"}]})):
        reply = await client.post(route, json=ask | {field: value})
        assert reply.status_code == 400, reply.text
        error = error_of(reply)
        assert (error["param"], error["code"]) == (field, "unsupported_value")


async def test_neutral_values_are_accepted_and_not_reported(client: httpx.AsyncClient) -> None:
    reply = await client.post(COMPLETIONS, json={"prompt": "hi", "max_tokens": 1} | NEUTRAL)
    assert reply.status_code == 200, reply.text
    assert IGNORED_HEADER not in reply.headers


async def test_null_is_neutral_for_every_field(client: httpx.AsyncClient) -> None:
    reply = await client.post(COMPLETIONS, json={"prompt": "hi", "max_tokens": 1} | dict.fromkeys(RULES))
    assert reply.status_code == 200, reply.text


async def test_numbers_equal_to_booleans_are_not_neutral(client: httpx.AsyncClient) -> None:
    for field, value in (("echo", 0), ("best_of", True), ("priority", False)):
        reply = await client.post(COMPLETIONS, json={"prompt": "hi", field: value})
        assert error_of(reply)["param"] == field


async def test_unknown_fields_are_ignored_and_named(client: httpx.AsyncClient) -> None:
    extra = {"": 1, "zz": 1, "a\r\nSet-Cookie: x": 1, "é" * 100: 1} | {f"k{n}": n for n in range(30)}
    reply = await client.post(COMPLETIONS, json={"prompt": "hi", "max_tokens": 1} | extra)
    assert reply.status_code == 200
    header = reply.headers[IGNORED_HEADER]
    assert header.startswith("?, zz, a??Set-Cookie??x, ??")
    assert header.endswith("and 18 more")
    assert len(header) < 2000
    assert "set-cookie" not in reply.headers


async def test_unknown_fields_within_options_and_messages(client: httpx.AsyncClient) -> None:
    message = {"role": "user", "content": "hi", "cache_control": {}}
    options = {"include_usage": True, "include_obfuscation": True}
    ask = {"messages": [message, message], "max_tokens": 1, "stream": True, "stream_options": options}
    reply = await client.post(CHAT, json=ask)
    assert reply.headers[IGNORED_HEADER] == "stream_options.include_obfuscation, messages.cache_control"
    refused = ask | {"stream_options": {"continuous_usage_stats": True}}
    assert error_of(await client.post(CHAT, json=refused))["param"] == "stream_options.continuous_usage_stats"
    refused = ask | {"messages": [message | {"function_call": {"name": "f"}}]}
    assert error_of(await client.post(CHAT, json=refused))["param"] == "messages.function_call"


def test_no_header_without_unknown_fields() -> None:
    assert ignored_header([]) == {}


def test_a_field_is_either_honoured_or_in_the_table() -> None:
    for kind in (schemas.CompletionRequest, schemas.ChatRequest):
        assert not {field.encode_name for field in msgspec.structs.fields(kind)} & set(RULES)
