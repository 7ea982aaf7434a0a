"""Bytes on a socket: slow, giant, malformed and half requests, and readers that stop."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable

import msgspec
import pytest

from tests.server.conftest import MakeEngine, MakeServer
from tests.server.fake_engine import says
from tests.server.live import LiveServer, read_all
from tfjax.server.openapi import document
from tfjax.server.protocol import ServerProtocol

HOST = b"Host: 127.0.0.1\r\n"
JSON = b"Content-Type: application/json\r\n"
ASK = b'{"prompt": "hi", "max_tokens": 2}'


def post(body: bytes, headers: bytes = b"", path: bytes = b"/v1/completions") -> bytes:
    length = b"Content-Length: %d\r\n" % len(body)
    return b"POST " + path + b" HTTP/1.1\r\n" + HOST + JSON + length + headers + b"\r\n" + body


def answer(data: bytes) -> tuple[int, bytes]:
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


@pytest.fixture
def server(make_server: MakeServer) -> LiveServer:
    return make_server()


def still_serves(server: LiveServer) -> None:
    status, body = answer(server.raw(post(ASK, b"Connection: close\r\n")))
    assert status == 200
    assert json.loads(body)["choices"][0]["text"] == "He"


def test_headers_that_never_end_are_408(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerProtocol, "header_timeout_s", 0.2)
    started_s = time.monotonic()
    for half in (b"", b"GET /health HTTP/1.1\r\nHo"):
        status, body = answer(server.raw(half))
        assert status == 408
        assert json.loads(body)["error"]["code"] == "timeout"
    assert time.monotonic() - started_s < 3
    still_serves(server)


def drip(connection: socket.socket, data: bytes) -> None:
    for byte in data:
        connection.sendall(bytes([byte]))
        time.sleep(0.02)


def test_dripping_headers_do_not_put_the_limit_off(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerProtocol, "header_timeout_s", 0.3)
    with server.connect() as connection:
        started_s = time.monotonic()
        with pytest.raises(ConnectionError):
            drip(connection, b"GET /health HTTP/1.1\r\n" + b"x" * 1000)
        assert time.monotonic() - started_s < 3


def test_a_kept_connection_is_timed_again(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerProtocol, "header_timeout_s", 0.2)
    with server.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
        assert b"200 OK" in connection.recv(65536)
        connection.sendall(b"GET /health HT")
        assert b"408" in read_all(connection)


def test_a_long_reply_outlasts_the_header_limit(
    make_server: MakeServer, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerProtocol, "header_timeout_s", 0.1)
    server = make_server(make_engine(round_s=0.06))
    status, body = answer(server.raw(post(b'{"prompt": "hi"}', b"Connection: close\r\n")))
    assert status == 200
    assert json.loads(body)["choices"][0]["text"] == "Hello, world! "


@pytest.mark.parametrize(
    "header", [b"X: " + b"y" * 70_000 + b"\r\n", b"".join(b"X%d: y\r\n" % n for n in range(10_000))]
)
def test_giant_headers_are_431(server: LiveServer, header: bytes) -> None:
    data = server.raw(b"GET /health HTTP/1.1\r\n" + HOST + header + b"Connection: close\r\n\r\n")
    assert answer(data)[0] == 431
    still_serves(server)


def test_giant_headers_without_end_are_400(server: LiveServer) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nX: " + b"y" * 40_000)
        time.sleep(0.05)
        connection.sendall(b"y" * 40_000)
        assert answer(read_all(connection))[0] == 400
    still_serves(server)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_not_http_is_400_in_openais_shape(server: LiveServer, data: bytes) -> None:
    status, body = answer(server.raw(data + b"\r\n\r\n"))
    assert status == 400
    assert json.loads(body)["error"]["code"] == "invalid_http"
    still_serves(server)


def test_bad_chunks_and_half_bodies_leave_the_server_standing(server: LiveServer) -> None:
    chunked = b"POST /v1/completions HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
    for data in (chunked + b"zz\r\nhello\r\n", chunked + b"5\r\nhel", post(ASK)[:-5]):
        with server.connect() as connection:
            connection.sendall(data)
            time.sleep(0.02)
    still_serves(server)
    assert server.engine.submitted[-1].prompt == (104, 105)
    assert len(server.engine.submitted) == 1


def test_good_chunks(server: LiveServer) -> None:
    head = (
        b"POST /v1/completions HTTP/1.1\r\n" + HOST + JSON + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    body = b"".join(b"1\r\n" + bytes([byte]) + b"\r\n" for byte in ASK) + b"0\r\n\r\n"
    assert answer(server.raw(head + body))[0] == 200


def test_a_long_body_gets_its_413(make_server: MakeServer) -> None:
    server = make_server()
    status, body = answer(server.raw(post(b" " * 9_000_000, b"Connection: close\r\n")))
    assert status == 413
    assert json.loads(body)["error"]["code"] == "body_too_large"
    head = b"POST /v1/completions HTTP/1.1\r\n" + HOST + JSON
    status, _ = answer(
        server.raw(head + b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: 9000000\r\n\r\n")
    )
    assert status == 413


@pytest.mark.parametrize("stream", [False, True])
def test_a_closed_socket_frees_the_lane(make_server: MakeServer, make_engine: MakeEngine, stream: bool) -> None:
    server = make_server(make_engine(says("x", end=None), round_s=0.002))
    body = json.dumps({"prompt": "hi", "stream": stream}).encode()
    with server.connect() as connection:
        connection.sendall(post(body))
        wait_for(lambda: server.engine.rounds > 5)
    wait_for(lambda: server.engine.status().running == 0)
    assert server.service.in_flight == 0
    still_serves_after(server)


def still_serves_after(server: LiveServer) -> None:
    status, body = answer(server.raw(post(ASK, b"Connection: close\r\n")))
    assert status == 200
    assert json.loads(body)["usage"]["completion_tokens"] == 2


def test_a_reader_that_stops_reading_is_cut(make_server: MakeServer, make_engine: MakeEngine) -> None:
    server = make_server(make_engine(says("x" * 3000, end=None), per_round=500, context=10_000_000))
    server.service.stalled_s = 0.2
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(post(b'{"prompt": "hi", "stream": true, "logprobs": 20}'))
        wait_for(lambda: list(server.engine.ended.values()) == ["cancelled"])
        wait_for(lambda: not server.connections())
    still_serves_after(server)


def test_connections_are_limited(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerProtocol, "max_connections", 1)
    with server.connect():
        wait_for(lambda: server.connections() == 1)
        with server.connect() as second:
            status, body = answer(read_all(second))
        assert (status, json.loads(body)["error"]["code"]) == (503, "overloaded")
    wait_for(lambda: server.connections() == 0)
    still_serves(server)


def test_pipelined_requests_are_answered_in_order(server: LiveServer) -> None:
    data = server.raw(post(ASK) + b"GET /health HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
    assert data.count(b"HTTP/1.1 200") == 2
    assert data.index(b"text_completion") < data.index(b'"status":"ok"')


@pytest.fixture
def roomy(make_server: MakeServer, make_engine: MakeEngine) -> LiveServer:
    """A server whose replies may be long."""
    return make_server(make_engine(context=10**6))


def deaf(server: LiveServer, data: bytes) -> socket.socket:
    """A client with hardly any room for what it asks for."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(10)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(data)
    return connection


BIG = post(json.dumps({"tokens": [1] * 1_000_000}).encode(), path=b"/detokenize")
SPEC = b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"


@pytest.mark.parametrize("data", [BIG, BIG + post(b'{"prompt": "hi", "stream": true}'), SPEC * 300], ids=len)
def test_replies_that_nobody_reads_end_their_connection(
    roomy: LiveServer, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(ServerProtocol, "stalled_s", 0.3)
    with deaf(roomy, data):
        wait_for(lambda: roomy.connections() == 1)
        wait_for(lambda: roomy.connections() == 0)
    roomy.wait_idle()
    still_serves(roomy)


@pytest.mark.parametrize("close", [b"", b"Connection: close\r\n"])
def test_few_unread_bytes_end_their_connection_too(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch, close: bytes
) -> None:
    monkeypatch.setattr(ServerProtocol, "stalled_s", 0.3)
    monkeypatch.setattr(ServerProtocol, "send_buffer_bytes", 4096)
    with deaf(server, SPEC.replace(HOST, HOST + close)):
        wait_for(lambda: server.connections() == 1)
        wait_for(lambda: server.connections() == 0)


def test_a_late_reader_keeps_its_connection(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerProtocol, "stalled_s", 0.3)
    monkeypatch.setattr(ServerProtocol, "send_buffer_bytes", 4096)
    end = msgspec.json.encode(document())[-1000:]
    with deaf(server, SPEC) as connection:
        for _ in range(2):
            time.sleep(0.1)
            data = b""
            while not data.partition(b"\r\n\r\n")[2].endswith(end):
                part = connection.recv(65536)
                assert part
                data += part
            time.sleep(0.4)
            connection.sendall(SPEC)


@pytest.mark.parametrize(("least_bytes", "complete"), [(1, True), (10**6, False)])
def test_a_slow_reader_gets_a_long_reply_unless_it_hardly_reads(
    roomy: LiveServer, monkeypatch: pytest.MonkeyPatch, least_bytes: int, complete: bool
) -> None:
    monkeypatch.setattr(ServerProtocol, "stalled_s", 0.3)
    monkeypatch.setattr(ServerProtocol, "stalled_bytes", least_bytes)
    monkeypatch.setattr(ServerProtocol, "send_buffer_bytes", 64 * 1024)
    ask = json.dumps({"tokens": [1] * 150_000}).encode()
    started_s = time.monotonic()
    with deaf(roomy, post(ask, b"Connection: close\r\n", path=b"/detokenize")) as connection:
        data = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                data += part
                time.sleep(0.005)
    assert time.monotonic() - started_s > 0.3
    assert (answer(data)[1].count(b"\\u0001") == 150_000) is complete
