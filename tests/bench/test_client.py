"""What comes of a request: a whole reply, or one line that says what is wrong and what to do."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.bench.conftest import Misbehave, Serve
from tests.server.live import LiveServer
from tfjax.bench import main
from tfjax.bench.client import Client, ServerFacts, base_url
from tfjax.bench.reply import Reply
from tfjax.terminal import CommandError

PIECE = b'data: {"choices": [{"index": 0, "text": "half a "}]}\n\n'
DONE = b"data: [DONE]\n\n"


def ask(url: str, route: str = "/v1/completions", **fields: Any) -> Reply:
    async def run() -> Reply:
        async with Client(url) as client:
            return await client.ask(route, {"prompt": "hi", **fields})

    return asyncio.run(run())


def test_a_whole_reply(serve: Serve) -> None:
    reply = ask(serve().url, max_tokens=9, temperature=0)
    assert (reply.tokens, len(reply.text), reply.prompt_tokens, reply.finish_reason) == (9, 9, 2, "length")
    assert [arrival.chars for arrival in reply.arrivals] == [4, 4, 1]
    assert reply.sent_s < reply.arrivals[0].at_s <= reply.arrivals[-1].at_s == reply.ended_s
    assert reply.token_sha256 == reply.block["token_sha256"]
    assert len(reply.token_sha256 or "") == 64
    assert reply.cached_tokens == 0


def test_chat(serve: Serve) -> None:
    url = serve().url
    reply = ask(url, "/v1/chat/completions", messages=[{"role": "user", "content": "hi"}], prompt=None, max_tokens=5)
    assert (reply.tokens, len(reply.text)) == (5, 5)


def test_a_reply_of_another_server(misbehave: Misbehave) -> None:
    """No usage, no tfjax block: pieces are counted and the hash is unknown."""
    reply = ask(misbehave(PIECE + PIECE + DONE))
    assert (reply.tokens, reply.text, reply.token_sha256, reply.prompt_tokens) == (2, "half a half a ", None, None)


def facts(url: str, model: str | None = None) -> ServerFacts:
    async def run() -> ServerFacts:
        async with Client(url) as client:
            return await client.facts(model)

    return asyncio.run(run())


def test_facts(serve: Serve, misbehave: Misbehave) -> None:
    ours = facts(serve().url + "/v1/")
    assert ours.model == "fake-1"
    assert (ours.capabilities or {})["engine"] == {"arithmetic": "scripted", "lanes": 8}
    assert facts(misbehave()) == ServerFacts("m", None)
    assert facts(misbehave(models=b"{}"), "named") == ServerFacts("named", None)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:80", "http://127.0.0.1:80"),
        ("https://a.example/v1/", "https://a.example"),
        ("http://a.example/under/v1", "http://a.example/under"),
        ("http://[::1]:8/", "http://[::1]:8"),
    ],
)
def test_base_url(text: str, url: str) -> None:
    assert base_url(text) == url


@pytest.mark.parametrize("text", ["", "ftp://a", "http://", "http://a:x", "http://a?b=c", "http://a:99999"])
def test_no_url(text: str) -> None:
    with pytest.raises(CommandError, match="is no URL of a server; give the URL"):
        base_url(text)


# Bad servers, as the commands meet them.

ERROR = json.dumps({"error": {"message": "It burns.", "type": "server_error"}}).encode()
BAD = {
    "500": (
        {"status": 500, "type": "application/json", "body": ERROR},
        "answers 500: It burns; look at the server's log",
    ),
    "500 of another": (
        {"status": 500, "type": "text/html", "body": b"<html>"},
        "answers 500; look at the server's log",
    ),
    "busy": (
        {"status": 503, "type": "text/plain", "body": b"full"},
        "answers 503: full; wait until the server is ready",
    ),
    "key": (
        {"status": 401, "type": "application/json", "body": b"{}"},
        "answers 401; give the server's key with --api-key",
    ),
    "html": (
        {"type": "text/html", "body": b"<html>hello</html>"},
        "answers with text/html instead of text/event-stream",
    ),
    "json": ({"type": "application/json", "body": b"{}"}, "answers with application/json instead of text/event-stream"),
    "half a stream": ({"body": PIECE}, "broke off the stream after 7 characters; look at the logs"),
    "cut": ({"body": PIECE, "cut": True}, "broke off the stream after 7 characters; look at the logs"),
    "cut at once": ({"cut": True}, "broke the connection"),
    "nothing": ({"body": b""}, "sent a stream without text and without its end"),
    "no chunk": ({"body": b"data: hello\n\n"}, "sent an event that is no chunk: hello"),
    "a list": ({"body": b"data: [1]\n\n"}, "sent an event that is no chunk: [1]"),
    "error inside": ({"body": PIECE + b"data: " + ERROR + b"\n\n" + DONE}, "ended the stream with an error: It burns;"),
    "models html": ({"models": b"<html>", "models_type": "text/html"}, "v1/models answers with text/html instead of"),
    "models 500": ({"models": b"", "models_status": 500}, "/v1/models answers 500; look at the server's log"),
    "models broken": ({"models": b"{"}, "/v1/models answers with JSON that is broken; give the URL"),
    "no models": ({"models": b'{"data": []}'}, "/v1/models names no model; give one with --model"),
}


@pytest.mark.parametrize("command", ["concurrent", "exact"])
@pytest.mark.parametrize("case", BAD)
def test_a_bad_server_is_one_line(
    command: str, case: str, misbehave: Misbehave, capsys: pytest.CaptureFixture[str]
) -> None:
    options, message = BAD[case]
    assert main([command, misbehave(**options), "--kinds", "code"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"tfjax bench {command}: error: http://127.0.0.1:")
    assert message in last
    assert "Traceback" not in last


@pytest.mark.parametrize("command", ["concurrent", "exact"])
def test_no_server(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "127.0.0.1:1"]) == 1
    assert "http://127.0.0.1:1 cannot be reached" in capsys.readouterr().err


def test_a_silent_server(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    server: LiveServer = serve(round_s=3.0)
    assert main(["exact", server.url, "--timeout-s", "0.2", "--kinds", "code"]) == 1
    assert "was silent for 0.2 s; raise --timeout-s" in capsys.readouterr().err


def test_a_server_with_a_key(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    server = serve(settings={"api_key": ("secret",)})
    assert main(["exact", server.url]) == 1
    assert "answers 401" in capsys.readouterr().err
    assert main(["exact", server.url, "--api-key", "secret", "--tokens", "4", "--num-prompts", "1"]) == 0


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert ask(serve().url, max_tokens=3).tokens == 3
