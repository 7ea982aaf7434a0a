"""Every field with every kind of bad value: 400, and the field is named."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from tests.server.helpers import CHAT, COMPLETIONS, error_of
from tfjax.server import schemas

BASE: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"prompt": "hi", "max_tokens": 1},
    CHAT: {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1},
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [104]},
}
KINDS: dict[str, type[msgspec.Struct]] = {
    COMPLETIONS: schemas.CompletionRequest,
    CHAT: schemas.ChatRequest,
    "/tokenize": schemas.TokenizeRequest,
    "/detokenize": schemas.DetokenizeRequest,
}
# As JSON text, for some of them have no Python value that a JSON writer accepts.
BAD_NUMBERS = (
    "-1",
    str(-(2**31)),
    str(2**63),
    "1e309",
    "-1e309",
    "NaN",
    "Infinity",
    '"1"',
    "true",
    "[]",
    "{}",
    "9" * 30,
)
BAD_INTEGERS = (*BAD_NUMBERS, "1.5")
BAD_TEXTS = ("-1", "1e309", "NaN", "true", "[[]]", "{}", "[1.5]")
BAD_BOOLEANS = ("-1", "0", "1", '"true"', "[]", "{}", "1e309", "NaN")
# -1 is a penalty, and a list of numbers is a prompt.
FITS = {("presence_penalty", "-1"), ("frequency_penalty", "-1"), ("tokens", "[]"), ("stop", "[]")}


def parts_of(kind: Any) -> set[Any]:
    """The plain types within a field's type."""
    if typing.get_origin(kind) is typing.Annotated:
        return parts_of(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (list, dict):
        return {typing.get_origin(kind)}
    inner = typing.get_args(kind)
    return set().union(*map(parts_of, inner)) if inner and typing.get_origin(kind) is not typing.Literal else {kind}


def cases() -> Iterator[tuple[str, str, str]]:
    for route, struct in KINDS.items():
        for field in msgspec.structs.fields(struct):
            parts = parts_of(field.type)
            if bool in parts:
                values: tuple[str, ...] = BAD_BOOLEANS
            elif int in parts and str not in parts:
                values = BAD_INTEGERS
            elif float in parts:
                values = BAD_NUMBERS
            else:
                values = BAD_TEXTS
            if dict in parts or any(isinstance(part, type) and issubclass(part, msgspec.Struct) for part in parts):
                values = tuple(value for value in values if value != "{}")
            for value in values:
                if (field.encode_name, value) not in FITS:
                    yield route, field.encode_name, value


CASES = list(cases())


def test_the_table_covers_all_fields() -> None:
    assert len({name for _, name, _ in CASES}) >= 30
    assert len(CASES) > 400


@pytest.mark.parametrize("route", KINDS)
async def test_bad_values_are_400_and_name_the_field(client: httpx.AsyncClient, route: str) -> None:
    for of, name, value in CASES:
        if of != route:
            continue
        fields = {key: json.dumps(known) for key, known in BASE[route].items()} | {name: value}
        body = "{" + ", ".join(f'"{key}": {text}' for key, text in fields.items()) + "}"
        reply = await client.post(route, content=body, headers={"content-type": "application/json"})
        assert reply.status_code == 400, (body, reply.text)
        error = error_of(reply)
        assert error["type"] == "invalid_request_error"
        named = f"{error['param']} {error['message']}"
        assert name in named, (body, error)
    assert (await client.post(route, json=BASE[route])).status_code == 200


@pytest.mark.parametrize("route", KINDS)
async def test_null_means_default(client: httpx.AsyncClient, route: str) -> None:
    names = [f.encode_name for f in msgspec.structs.fields(KINDS[route]) if f.encode_name not in BASE[route]]
    reply = await client.post(route, json=BASE[route] | dict.fromkeys(names))
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("stop", [None], "stop[0]"),
        ("stop", ["a"] * 17, "stop"),
        ("stop", "x" * 257, "stop"),
        ("stop", [""], "stop[0]"),
        ("stop", "", "stop"),
        ("stop_token_ids", [None], "stop_token_ids[0]"),
        ("stop_token_ids", [-1], "stop_token_ids[0]"),
        ("stop_token_ids", [260], "stop_token_ids"),
        ("stop_token_ids", [2**63], "stop_token_ids[0]"),
        ("prompt", [None], "prompt[0]"),
        ("prompt", [-1], "prompt[0]"),
        ("prompt", [2**63], "prompt[0]"),
        ("prompt", [1.5], "prompt[0]"),
        ("prompt", [True], "prompt[0]"),
        ("prompt", [[1, -1]], "prompt[0][1]"),
        ("prompt", None, "prompt"),
        ("logit_bias", {"1": 101}, "logit_bias[...]"),
        ("logit_bias", {"1": None}, "logit_bias[...]"),
        ("logit_bias", {str(n): 1 for n in range(1025)}, "logit_bias"),
        ("n", 17, "n"),
        ("n", 0, "n"),
        ("max_tokens", 0, "max_tokens"),
        ("logprobs", 21, "logprobs"),
        ("temperature", 100.5, "temperature"),
        ("top_p", -0.01, "top_p"),
        ("top_p", 1.01, "top_p"),
        ("min_p", 1.01, "min_p"),
        ("repetition_penalty", 0, "repetition_penalty"),
        ("presence_penalty", 2.1, "presence_penalty"),
        ("seed", -1, "seed"),
        ("stream_options", {"include_usage": 1}, "stream_options.include_usage"),
    ],
)
async def test_bounds_and_items(client: httpx.AsyncClient, field: str, value: object, param: str) -> None:
    reply = await client.post(COMPLETIONS, json=BASE[COMPLETIONS] | {field: value})
    assert reply.status_code == 400, reply.text
    assert error_of(reply)["param"] == param


@pytest.mark.parametrize(
    "edge", [{"temperature": 0}, {"temperature": 2}, {"top_p": 0}, {"top_p": 1}, {"n": 16}, {"seed": 2**63 - 1}]
)
async def test_edges_that_fit(client: httpx.AsyncClient, edge: dict[str, Any]) -> None:
    assert (await client.post(COMPLETIONS, json=BASE[COMPLETIONS] | edge)).status_code in (200, 503)


async def test_too_many_messages(client: httpx.AsyncClient) -> None:
    reply = await client.post(CHAT, json={"messages": [{"role": "user", "content": "x"}] * 4097})
    assert error_of(reply)["param"] == "messages"


async def test_missing_required_fields(client: httpx.AsyncClient) -> None:
    for route, name in (
        (COMPLETIONS, "prompt"),
        (CHAT, "messages"),
        ("/detokenize", "tokens"),
        ("/tokenize", "prompt"),
    ):
        reply = await client.post(route, json={})
        assert reply.status_code == 400
        assert error_of(reply)["param"] == name
