"""What no other test of a route looks at."""

from __future__ import annotations

import httpx


async def test_the_root_points_to_the_routes(client: httpx.AsyncClient) -> None:
    reply = await client.get("/")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    [line] = reply.text.splitlines()
    for path in ("/openapi.json", "/health"):
        assert path in line
        assert (await client.get(path)).status_code == 200
