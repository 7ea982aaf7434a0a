"""The server as a process: ready lines, loading, signals, exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import httpx
import pytest

from tfjax.server.run import listen

ROOT = Path(__file__).parents[2]


def collect(pipe: IO[str], lines: list[str]) -> None:
    for line in pipe:
        lines.append(line)  # noqa: PERF402


class Process:
    """A server in a process of its own."""

    def __init__(self, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.fake_serve", json.dumps(options)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._readers = [
            threading.Thread(target=collect, args=(self.process.stdout, self.out), daemon=True),
            threading.Thread(target=collect, args=(self.process.stderr, self.err), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def wait_for(self, pattern: str, timeout_s: float = 20.0) -> re.Match[str]:
        """The first match in what was printed."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            found = re.search(pattern, "".join([*self.out, *self.err]))
            if found:
                return found
            assert time.monotonic() < deadline_s, f"{pattern}: {self.out} {self.err}"
            time.sleep(0.01)

    @property
    def url(self) -> str:
        return self.wait_for(r"base_url (http://\S+)/v1").group(1)

    def signal(self, number: int = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def exit_code(self, timeout_s: float = 10.0) -> int:
        code = self.process.wait(timeout_s)
        for reader in self._readers:
            reader.join(5)
        return code

    def close(self) -> None:
        self.process.kill()
        self.exit_code()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def start() -> Iterator[Any]:
    made: list[Process] = []

    def make(**options: Any) -> Process:
        made.append(Process(**options))
        return made[-1]

    yield make
    for process in made:
        process.close()


class Stream(threading.Thread):
    """A client that reads a stream to its end."""

    def __init__(self, url: str, **ask: Any) -> None:
        super().__init__(daemon=True)
        self._url, self._ask = url, {"prompt": "hi", "stream": True, **ask}
        self.text = ""
        self.begun = threading.Event()
        self.start()

    def run(self) -> None:
        with httpx.stream("POST", self._url + "/v1/completions", json=self._ask, timeout=30) as reply:
            for piece in reply.iter_text():
                self.text += piece
                self.begun.set()


def test_ready_lines_and_a_quiet_end(start: Any) -> None:
    server = start(settings={"alias": ["mine"]})
    url = server.url
    server.wait_for(r"model: mine\n")
    server.wait_for(r"curl http://127\.0\.0\.1:\d+/v1/completions -H 'Content-Type: application/json' -d '\{.*\}'\n")
    reply = httpx.post(url + "/v1/completions", json={"prompt": "secret words", "max_tokens": 3})
    assert reply.json()["choices"][0]["text"] == "xxx"
    line = server.wait_for(r"request id=cmpl-\w+ key=- route=\"POST /v1/completions\" status=200.*\n").group(0)
    for part in (" prompt=12 ", " cached=0 ", " out=3 ", " ttft_ms=", " tok_s=", " accepted=1/3"):
        assert part in line
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    assert server.err[-1] == "tfjax: stopped\n"
    assert "secret words" not in "".join(server.err)
    assert "Traceback" not in "".join(server.err)


def test_a_drain_lets_running_replies_finish_and_refuses_new_ones(start: Any) -> None:
    server = start(round_s=0.01, settings={"drain_s": 20})
    stream = Stream(server.url, max_tokens=200)
    assert stream.begun.wait(10)
    server.signal()
    server.wait_for("1 reply may finish")
    assert httpx.get(server.url + "/health").json()["status"] == "draining"
    assert httpx.post(server.url + "/v1/completions", json={"prompt": "hi"}).status_code == 503
    stream.join(20)
    assert '"finish_reason":"length"' in stream.text
    assert server.exit_code() == 0


@pytest.mark.slow
def test_what_does_not_finish_in_time_is_cut_with_an_error_event(start: Any) -> None:
    server = start(round_s=0.01, settings={"drain_s": 0.2})
    stream = Stream(server.url)
    assert stream.begun.wait(10)
    server.signal(signal.SIGTERM)
    stream.join(20)
    assert stream.text.endswith("data: [DONE]\n\n")
    assert '"code":"stopped"' in stream.text
    assert server.exit_code() == 0


@pytest.mark.parametrize("prefill_rounds", [pytest.param(0, marks=pytest.mark.slow), 10**9])
def test_a_second_signal_stops_at_once_also_within_a_long_prompt(start: Any, prefill_rounds: int) -> None:
    server = start(round_s=0.01, prefill_rounds=prefill_rounds, settings={"drain_s": 60})
    Stream(server.url)
    while not httpx.get(server.url + "/health").json()["running"]:
        time.sleep(0.01)
    server.signal()
    server.wait_for("1 reply may finish")
    started_s = time.monotonic()
    server.signal()
    assert server.exit_code() == 130
    assert time.monotonic() - started_s < 5


def post(path: str, ask: object) -> bytes:
    body = json.dumps(ask).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


def deaf_client(url: str) -> socket.socket:
    """A client that asks for more than the kernel holds and for a stream behind it, and never reads."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", int(url.rpartition(":")[2])))
    connection.sendall(post("/detokenize", {"tokens": [1] * 1_000_000}))
    connection.sendall(post("/v1/completions", {"prompt": "hi", "stream": True}))
    return connection


@pytest.mark.parametrize(("signals", "code"), [(1, 0), (2, 130)])
def test_a_client_that_never_reads_does_not_hold_up_the_end(start: Any, signals: int, code: int) -> None:
    server = start(round_s=0.01, settings={"drain_s": 0.2 if signals == 1 else 60})
    with deaf_client(server.url):
        while not httpx.get(server.url + "/health").json()["running"]:
            time.sleep(0.01)
        server.signal(signal.SIGTERM)
        if signals == 2:
            server.wait_for("1 reply may finish")
            server.signal(signal.SIGTERM)
        assert server.exit_code() == code
    assert "Traceback" not in "".join(server.err)


def test_half_a_body_at_the_end_is_one_line_in_the_log(start: Any) -> None:
    server = start()
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as connection:
        connection.sendall(post("/v1/completions", {"prompt": "hi"})[:-5])
        httpx.get(server.url + "/health")
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
    lines = "".join(server.err).partition("tfjax: read")[2].splitlines()[1:]
    assert [re.sub(r".*(route=.*) ms=.*", r"\1", line) for line in lines] == [
        'route="POST /v1/completions" status=499',
        "tfjax: stopped",
    ], server.err


def test_loading_answers_health_and_stops_on_a_signal(start: Any) -> None:
    port = free_port()
    server = start(load_s=60, settings={"port": port})
    body = health(port)
    assert (body["status"], body["phase"], body["fraction"]) == ("loading", "read", 0.5)
    server.wait_for("tfjax: read")
    server.signal(signal.SIGUSR1)
    server.wait_for(r"Current thread .*|Thread 0x.*")
    # Printed by Python code, so under the interpreter lock: frames that run on while they are read crash the process.
    server.wait_for(r".*in _print_stacks")
    server.signal()
    assert server.exit_code(5) == 130
    server.wait_for("stopped while loading")
    assert server.err[-1] == "tfjax: stopped\n"


@pytest.mark.slow
def test_a_failed_load_is_exit_code_1_with_its_message(start: Any) -> None:
    server = start(load_error="model.safetensors: truncated")
    assert server.exit_code() == 1
    server.wait_for("model.safetensors: truncated")
    assert "tfjax: stopped\n" not in server.err


@pytest.mark.slow
def test_a_failed_engine_ends_the_process_with_1(start: Any) -> None:
    server = start(fail_after_s=0)
    assert server.exit_code() == 1
    server.wait_for("the engine has failed: device lost")
    assert "tfjax: stopped\n" not in server.err


@pytest.mark.slow
def test_json_logs(start: Any) -> None:
    server = start(settings={"log_format": "json", "log_prompts": True, "api_key": ["k"]})
    httpx.post(server.url + "/v1/completions", json={"prompt": "hi", "max_tokens": 1}, headers={"x-api-key": "k"})
    entry = json.loads(server.wait_for(r"\{.*\"route\".*\}\n").group(0))
    assert (entry["key"], entry["status"], entry["out"]) == ("key-1", 200, 1)
    assert (entry["prompt_text"], entry["reply_text"]) == ("hi", "x")
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    assert json.loads(server.err[-1])["message"] == "stopped"


def test_a_taken_port_names_port_and_remedy() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"port {port} on 127\.0\.0\.1 is in use; .*--port N \(make serve PORT=N\)"):
            listen("127.0.0.1", port)


def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(OSError, match="no address"):
        listen("no.such.host.invalid", 0)
    with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1"):
        listen("192.0.2.1", 0)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def health(port: int) -> dict[str, Any]:
    for _ in range(1000):
        try:
            body: dict[str, Any] = httpx.get(f"http://127.0.0.1:{port}/health").json()
        except httpx.TransportError:
            time.sleep(0.02)
        else:
            if body["phase"] == "read":
                return body
    raise AssertionError("no answer")
