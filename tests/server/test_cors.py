"""CORS is off unless an origin is named."""

from __future__ import annotations

from tests.server.conftest import MakeClient

PAGE = "https://page.example"
PREFLIGHT = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}


def cors_headers(headers: object) -> set[str]:
    return {name for name in headers if name.startswith("access-control")}  # type: ignore[attr-defined]


async def test_off_by_default(make_client: MakeClient) -> None:
    client = make_client()
    reply = await client.get("/v1/models", headers={"origin": PAGE})
    assert not cors_headers(reply.headers)
    reply = await client.options("/v1/chat/completions", headers=PREFLIGHT)
    assert reply.status_code == 405
    assert not cors_headers(reply.headers)


async def test_a_named_origin(make_client: MakeClient) -> None:
    client = make_client(cors_origin=(PAGE,), api_key=("k",))
    reply = await client.options("/v1/chat/completions", headers=PREFLIGHT)
    assert reply.status_code == 204
    assert reply.headers["access-control-allow-origin"] == PAGE
    assert "authorization" in reply.headers["access-control-allow-headers"]
    reply = await client.get("/v1/models", headers={"origin": PAGE, "x-api-key": "k"})
    assert reply.headers["access-control-allow-origin"] == PAGE
    assert "access-control-allow-credentials" not in reply.headers
    assert reply.headers["vary"] == "Origin"


async def test_other_origins(make_client: MakeClient) -> None:
    client = make_client(cors_origin=(PAGE,), api_key=("k",))
    other = {"origin": "https://evil.example"}
    assert (await client.options("/v1/models", headers=PREFLIGHT | other)).status_code == 401
    reply = await client.get("/v1/models", headers=other | {"x-api-key": "k"})
    assert not cors_headers(reply.headers)


async def test_a_preflight_opens_no_route(make_client: MakeClient) -> None:
    client = make_client(cors_origin=(PAGE,), api_key=("k",))
    reply = await client.request("OPTIONS", "/capabilities", headers=PREFLIGHT)
    assert reply.content == b""
    assert (await client.get("/capabilities", headers=PREFLIGHT)).status_code == 401
