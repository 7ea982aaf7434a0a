"""Fixtures: an application over the fake engine, in memory or on a loopback port."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.server.fake_engine import FakeEngine
from tests.server.live import LiveServer
from tfjax.config import ServeConfig
from tfjax.server import templates
from tfjax.server.app import build_app
from tfjax.server.service import Service
from tfjax.text.chat_template import ChatTemplate

MakeEngine = Callable[..., FakeEngine]
MakeClient = Callable[..., httpx.AsyncClient]
MakeServer = Callable[..., LiveServer]


@pytest.fixture(scope="session")
def shared_templates() -> Callable[[str, str, str], ChatTemplate]:
    return functools.cache(ChatTemplate)


@pytest.fixture(autouse=True)
def one_template_process(monkeypatch: pytest.MonkeyPatch, shared_templates: Any) -> None:
    """Each template has a process of its own; the tests share one a template."""
    monkeypatch.setattr(templates, "ChatTemplate", shared_templates)


@pytest.fixture
def make_engine() -> Iterator[MakeEngine]:
    """Makes engines and closes them."""
    made: list[FakeEngine] = []

    def make(*args: Any, **options: Any) -> FakeEngine:
        made.append(FakeEngine(*args, **options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
async def make_client(make_engine: MakeEngine) -> AsyncIterator[MakeClient]:
    """Makes clients of an application in memory; keywords are settings."""
    made: list[httpx.AsyncClient] = []
    services: list[Service] = []

    def make(engine: FakeEngine | None = None, *, ping_s: float = 15.0, **settings: Any) -> httpx.AsyncClient:
        services.append(Service(ServeConfig(**settings), engine or make_engine(), ping_s=ping_s))
        transport = httpx.ASGITransport(build_app(services[-1]))
        made.append(httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080", timeout=10))
        return made[-1]

    yield make
    for client in made:
        await client.aclose()
    for service in services:
        service.workers.close()


@pytest.fixture
def client(make_client: MakeClient) -> httpx.AsyncClient:
    return make_client()


@pytest.fixture
def make_server(make_engine: MakeEngine) -> Iterator[MakeServer]:
    """Makes servers on a loopback port; keywords are settings."""
    made: list[LiveServer] = []

    def make(engine: FakeEngine | None = None, **settings: Any) -> LiveServer:
        made.append(LiveServer(engine or make_engine(), ServeConfig(**settings)))
        return made[-1]

    yield make
    for server in made:
        server.close()
