"""Error bodies: one shape, and nothing from inside."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable

import pytest

from tests.server.byte_tokenizer import ByteTokenizer
from tests.server.conftest import MakeClient, MakeEngine
from tests.server.helpers import CHAT, COMPLETIONS, error_of
from tfjax.server.errors import ApiError, bad_request, body_of, headers_of, internal, unavailable


class BrokenTokenizer(ByteTokenizer):
    def encode(self, text: str, *, add_bos: bool | None = None, parse_special: bool = True) -> list[int]:
        raise RuntimeError("/secret/path at 0x7fff")

    def decode(self, ids: Iterable[int]) -> str:
        raise RuntimeError("/secret/path at 0x7fff")


async def test_an_unforeseen_error_is_500_and_its_text_goes_to_the_log_alone(
    make_client: MakeClient, make_engine: MakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    client = make_client(make_engine(tokenizer=BrokenTokenizer()))
    asks = {
        COMPLETIONS: {"prompt": "hi"},
        CHAT: {"messages": [{"role": "user", "content": "hi"}]},
        "/tokenize": {"prompt": "hi"},
        "/detokenize": {"tokens": [1]},
    }
    for route, ask in asks.items():
        reply = await client.post(route, json=ask)
        assert reply.status_code == 500
        assert (error_of(reply)["type"], error_of(reply)["code"]) == ("server_error", "internal_error")
        assert "secret" not in reply.text
        assert "0x7f" not in reply.text
    assert caplog.text.count("/secret/path") >= len(asks)
    assert (await client.post(COMPLETIONS, json={"prompt": [1], "max_tokens": 1})).status_code == 200


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (bad_request("a", "b", "c"), 400, "invalid_request_error"),
        (unavailable("a"), 503, "server_error"),
        (internal(), 500, "server_error"),
    ],
)
def test_bodies(error: ApiError, status: int, kind: str) -> None:
    body = json.loads(body_of(error))
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert (error.status, body["error"]["type"]) == (status, kind)


def test_headers() -> None:
    assert headers_of(unavailable("a", retry_after_s=7))["Retry-After"] == "7"
    assert headers_of(ApiError(401, "a"))["WWW-Authenticate"] == "Bearer"
    assert "Retry-After" not in headers_of(bad_request("a"))
