"""The Host allow-list on loopback addresses."""

from __future__ import annotations

import pytest

from tests.server.conftest import MakeClient
from tests.server.helpers import error_of
from tfjax.server.hosts import host_name

LOCAL = [
    "127.0.0.1",
    "127.0.0.1:8080",
    "localhost",
    "LocalHost:1",
    "[::1]:8080",
    "app.localhost:80",
    "127.9.9.9",
    "localhost.",
]
FOREIGN = [
    "evil.example",
    "evil.example:8080",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "evillocalhost",
    "10.0.0.1",
    "",
    "[::2]",
]


@pytest.mark.parametrize("host", LOCAL)
async def test_loopback_names_pass(make_client: MakeClient, host: str) -> None:
    assert (await make_client().get("/v1/models", headers={"host": host})).status_code == 200


@pytest.mark.parametrize("host", FOREIGN)
async def test_others_are_refused(make_client: MakeClient, host: str) -> None:
    for path in ("/v1/models", "/health"):
        reply = await make_client().get(path, headers={"host": host})
        assert reply.status_code == 403
        assert "--allowed-host" in error_of(reply)["message"]


async def test_two_host_headers_are_refused(make_client: MakeClient) -> None:
    reply = await make_client().get("/health", headers=[("host", "localhost"), ("host", "localhost")])
    assert reply.status_code == 403


async def test_allowed_hosts_are_added(make_client: MakeClient) -> None:
    client = make_client(allowed_host=("box.lan",))
    assert (await client.get("/health", headers={"host": "BOX.lan:8080"})).status_code == 200
    assert (await client.get("/health", headers={"host": "other.lan"})).status_code == 403


async def test_an_address_open_to_the_network_checks_only_when_told(make_client: MakeClient) -> None:
    client = make_client(host="0.0.0.0", api_key=("k",))
    assert (await client.get("/health", headers={"host": "any.name"})).status_code == 200
    client = make_client(host="0.0.0.0", api_key=("k",), allowed_host=("box.lan",))
    assert (await client.get("/health", headers={"host": "any.name"})).status_code == 403


def test_host_names() -> None:
    assert [host_name(h) for h in ("A.b:1", "[::1]:2", "[::1]", "a.")] == ["a.b", "::1", "::1", "a"]
