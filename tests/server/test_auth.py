"""Nothing but /health without a key."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from tests.server.conftest import MakeClient
from tests.server.helpers import error_of
from tfjax.config import ServeConfig
from tfjax.server.routes import Routes
from tfjax.server.service import Service

KEYS = ("sk-one", "sk-two")


def every_route() -> list[tuple[str, str]]:
    routes = Routes(Service(ServeConfig())).all()
    return [
        (method, route.path.replace("{id:path}", "fake-1"))
        for route in routes
        for method in sorted(route.methods or ())
    ]


def test_the_walk_sees_all_routes() -> None:
    assert {("POST", "/v1/chat/completions"), ("GET", "/metrics"), ("POST", "/tokenize")} <= set(every_route())


@pytest.mark.parametrize(
    ("method", "path"), [*every_route(), ("GET", "/nope"), ("OPTIONS", "/v1/models"), ("GET", "/")]
)
async def test_without_a_key_only_health_answers(make_client: MakeClient, method: str, path: str) -> None:
    client = make_client(api_key=KEYS)
    reply = await client.request(method, path)
    if path in ("/health", "/health/ready"):
        assert reply.status_code == 200
        return
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"] == "Bearer"
    if method != "HEAD":
        assert error_of(reply)["type"] == "authentication_error"


@pytest.mark.parametrize("path", ["/health/", "/health/x", "//health", "/HEALTH", "/health/../metrics", "/health%2f"])
async def test_no_path_slips_through_by_resembling_health(make_client: MakeClient, path: str) -> None:
    assert (await make_client(api_key=KEYS).get(path)).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer sk-one"},
        {"authorization": "bearer sk-two"},
        {"authorization": "Bearer  sk-two "},
        {"x-api-key": "sk-two"},
    ],
)
async def test_each_key_in_each_header(make_client: MakeClient, headers: dict[str, str]) -> None:
    assert (await make_client(api_key=KEYS).get("/v1/models", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer sk-on"},
        {"authorization": "Bearer sk-one2"},
        {"authorization": "Bearer"},
        {"authorization": "sk-one"},
        {"authorization": "Basic sk-one"},
        {"authorization": b"Bearer \xff\xfe"},
        {"authorization": ""},
        {"x-api-key": ""},
        {"x-api-key": "SK-ONE"},
        {"authorization": "Bearer wrong", "x-api-key": "sk-one"},
    ],
)
async def test_wrong_keys(make_client: MakeClient, headers: dict[str, str]) -> None:
    assert (await make_client(api_key=KEYS).get("/v1/models", headers=headers)).status_code == 401


async def test_without_keys_everything_is_open(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/models")).status_code == 200


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    write(path, "# mine\nfirst\n\nsecond\n")
    return path


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)
    stamp = path.stat().st_mtime_ns + 10**9
    os.utime(path, ns=(stamp, stamp))


def spoil(path: Path, damage: str) -> None:
    if damage == "gone":
        path.unlink()
    elif damage == "empty":
        write(path, "")
    else:
        write(path, "first")
        path.chmod(0o644)


async def status(client: httpx.AsyncClient, key: str) -> int:
    return (await client.get("/v1/models", headers={"x-api-key": key})).status_code


async def test_a_key_file_is_read_again_when_it_changes(make_client: MakeClient, key_file: Path) -> None:
    client = make_client(api_key=("fixed",), api_key_file=str(key_file))
    assert [await status(client, key) for key in ("first", "second", "fixed", "third")] == [200, 200, 200, 401]
    write(key_file, "third\n")
    assert [await status(client, key) for key in ("first", "second", "fixed", "third")] == [401, 401, 200, 200]


@pytest.mark.parametrize("damage", ["gone", "empty", "readable by others"])
async def test_a_key_file_that_cannot_be_used_closes_and_never_opens(
    make_client: MakeClient, key_file: Path, damage: str
) -> None:
    client = make_client(api_key_file=str(key_file))
    assert await status(client, "first") == 200
    spoil(key_file, damage)
    assert [await status(client, key) for key in ("first", "")] == [401, 401]
    write(key_file, "first\n")
    assert await status(client, "first") == 200
