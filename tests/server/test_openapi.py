"""The OpenAPI document, and schemathesis trying it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import hypothesis
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.server.fake_engine import FakeEngine
from tests.server.helpers import chunks
from tests.server.live import LiveServer
from tfjax.config import ServeConfig
from tfjax.server import replies
from tfjax.server.openapi import OPERATIONS, document
from tfjax.server.routes import Routes
from tfjax.server.service import Service

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


async def test_it_is_served(client: httpx.AsyncClient) -> None:
    assert (await client.get("/openapi.json")).json() == document()


def test_every_route_is_in_it() -> None:
    routes = {
        (route.path.replace(":path", ""), method.lower())
        for route in Routes(Service(ServeConfig())).all()
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert routes == {(path, method) for path, item in document()["paths"].items() for method in item}


def test_bounds_are_in_it() -> None:
    fields = document()["components"]["schemas"]["ChatRequest"]["properties"]
    assert {"type": "integer", "minimum": 1, "maximum": 16} in fields["n"]["anyOf"]
    assert fields["messages"]["maxItems"] == 4096
    assert document()["components"]["schemas"]["ChatRequest"]["required"] == ["messages"]


async def test_replies_are_what_the_document_says(client: httpx.AsyncClient) -> None:
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "logprobs": True, "top_logprobs": 2}
    text = {"prompt": "hi", "max_tokens": 3, "logprobs": 2}
    asked: dict[str, dict[str, Any]] = {
        "/v1/completions": text,
        "/v1/chat/completions": chat,
        "/tokenize": {"prompt": "hi"},
        "/detokenize": {"tokens": [104]},
    }
    for route, method, _, kind, _ in OPERATIONS:
        reply = await client.request(method.upper(), route.replace("{id}", "fake-1"), json=asked.get(route))
        assert reply.status_code == 200
        if kind is not None:
            msgspec.convert(reply.json(), kind)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    for part in chunks(await client.post("/v1/chat/completions", json=chat | options)):
        msgspec.convert(part, replies.ChatChunk)
    for part in chunks(await client.post("/v1/completions", json=text | options)):
        msgspec.convert(part, replies.TextReply)


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    engine = FakeEngine(max_queue=64, context=300)
    live = LiveServer(engine, ServeConfig())
    yield live
    live.close()
    engine.close()


HELLO = {"role": "user", "content": "hi"}
schema = schemathesis.openapi.from_dict(document())


def call_and_check(case: Case[Any], server: LiveServer) -> None:
    # More choices than the scripted engine's queue holds are a 503, as they should be.
    if isinstance(case.body, dict) and isinstance(n := case.body.get("n"), int):
        case.body["n"] = min(n, 2)
    case.call_and_validate(checks=CHECKS, base_url=server.url, timeout=20)


@pytest.mark.parametrize("route", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_streams_and_whole_replies_conform(server: LiveServer, route: str, stream: bool) -> None:
    ask: dict[str, Any] = {"prompt": "hi"} if route == "/v1/completions" else {"messages": [HELLO]}
    case = schema[route]["POST"].Case(body=ask | {"stream": stream, "max_tokens": 5}, media_type="application/json")
    call_and_check(case, server)


quick = hypothesis.settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@schema.parametrize()
@quick
def test_a_few_examples_of_each_operation(case: Case[Any], server: LiveServer) -> None:
    call_and_check(case, server)


@pytest.mark.slow
@schema.parametrize()
@hypothesis.settings(quick, max_examples=100, derandomize=False, phases=[Phase.explicit, Phase.generate])
def test_many_examples_of_each_operation(case: Case[Any], server: LiveServer) -> None:
    call_and_check(case, server)
