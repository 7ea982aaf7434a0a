"""Health, models, capabilities: what the server says about itself while it loads, serves, drains and fails."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.server.conftest import MakeClient, MakeEngine
from tests.server.helpers import COMPLETIONS, error_of
from tfjax.config import ServeConfig
from tfjax.server.app import build_app
from tfjax.server.model import model_of
from tfjax.server.service import Service


def client_of(service: Service) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(build_app(service))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080")


async def test_loading_is_503_with_phase_and_fraction(make_engine: MakeEngine) -> None:
    service = Service(ServeConfig())
    service.progress("compile: /models/model.gguf", 0.25)
    async with client_of(service) as client:
        for path in ("/health", "/health/ready"):
            reply = await client.get(path)
            assert reply.status_code == 503
            body = reply.json()
            assert (body["status"], body["phase"], body["fraction"]) == ("loading", "compile", 0.25)
        for path in ("/v1/models", "/capabilities"):
            reply = await client.get(path)
            assert (reply.status_code, error_of(reply)["code"]) == (503, "loading")
            assert "compile, 25%" in error_of(reply)["message"]
            assert "retry-after" in reply.headers
        assert (await client.post(COMPLETIONS, json={"prompt": "x"})).status_code == 503
        assert (await client.get("/metrics")).status_code == 200
        service.loaded(model_of(make_engine(), ()))
        assert (await client.get("/health")).status_code == 200
        assert (await client.post(COMPLETIONS, json={"prompt": "x", "max_tokens": 1})).status_code == 200
    service.workers.close()


@pytest.mark.parametrize(
    ("said", "name", "reason"),
    [({"name": "small", "kind": "small"}, "small", None), ({"name": None, "reason": "none fits"}, None, "none fits")],
)
async def test_health_names_the_drafter_or_why_there_is_none(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], name: str | None, reason: str | None
) -> None:
    engine = make_engine()
    monkeypatch.setattr(engine, "capabilities", lambda: {"drafter": said})
    async with client_of(Service(ServeConfig(), engine)) as client:
        body = (await client.get("/health")).json()
    assert (body["drafter"], body["drafter_reason"]) == (name, reason)


async def test_a_failed_engine_is_503(make_engine: MakeEngine) -> None:
    engine = make_engine()
    service = Service(ServeConfig(), engine)
    async with client_of(service) as client:
        engine.failed = "device lost at 0x7f00"
        reply = await client.get("/health")
        assert (reply.status_code, reply.json()["status"]) == (503, "failed")
        assert "0x7f" not in reply.text
        reply = await client.post(COMPLETIONS, json={"prompt": "x"})
        assert (reply.status_code, error_of(reply)["code"]) == (503, "engine_failed")
        engine.failed = None
        service.failed = "The engine makes no progress."
        assert (await client.get("/health")).json()["reason"] == "The engine makes no progress."


async def test_draining_takes_no_new_requests(make_engine: MakeEngine) -> None:
    service = Service(ServeConfig(), make_engine())
    service.draining = True
    async with client_of(service) as client:
        assert (await client.get("/health")).json()["status"] == "draining"
        reply = await client.post(COMPLETIONS, json={"prompt": "x"})
        assert (reply.status_code, error_of(reply)["code"]) == (503, "stopping")


async def test_models(make_client: MakeClient) -> None:
    client = make_client(alias=("org/mine",))
    body = (await client.get("/v1/models")).json()
    assert [card["id"] for card in body["data"]] == ["org/mine", "fake-1"]
    assert body["object"] == "list"
    card = (await client.get("/v1/models/org/mine")).json()
    assert (card["id"], card["object"], card["owned_by"]) == ("org/mine", "model", "tfjax")
    assert card["max_model_len"] == 4096
    reply = await client.get("/v1/models/gpt-4")
    assert (reply.status_code, error_of(reply)["code"]) == (404, "model_not_found")


async def test_capabilities_show_the_configuration_without_secrets(make_client: MakeClient) -> None:
    client = make_client(api_key=("sk-very-secret",), queue_wait_s=7.0)
    reply = await client.get("/capabilities", headers={"x-api-key": "sk-very-secret"})
    assert reply.status_code == 200
    assert "very-secret" not in reply.text
    body = reply.json()
    assert body["engine"]["arithmetic"] == "scripted"
    assert body["config"]["queue_wait_s"] == 7.0
    assert body["config"]["api_key"] == ["***"]
    assert body["server"]["limits"]["n"] == 16


async def test_no_route_and_wrong_method(client: httpx.AsyncClient) -> None:
    reply = await client.get("/v1/nothing")
    assert (reply.status_code, error_of(reply)["code"]) == (404, "not_found")
    reply = await client.get(COMPLETIONS)
    assert (reply.status_code, error_of(reply)["code"]) == (405, "method_not_allowed")
    assert reply.headers["allow"] == "POST"
    assert (await client.get("/v1/models/")).status_code == 404
