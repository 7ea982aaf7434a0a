"""Servers for the bench commands: the product's over a scripted engine, and ones that misbehave."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.bench.scripted import scripted_engine
from tests.server.conftest import make_engine, make_server, one_template_process, shared_templates
from tests.server.live import LiveServer

__all__ = ["make_engine", "make_server", "one_template_process", "shared_templates"]

Serve = Callable[..., LiveServer]
Misbehave = Callable[..., str]


@pytest.fixture
def serve(make_server: Callable[..., LiveServer]) -> Iterator[Serve]:
    """A server over `scripted_engine`; takes its arguments, and `settings`."""
    engines = []

    def start(*arguments: Any, settings: dict[str, Any] | None = None, **options: Any) -> LiveServer:
        engines.append(scripted_engine(*arguments, **options))
        return make_server(engines[-1], **(settings or {}))

    yield start
    for engine in engines:
        engine.close()


@pytest.fixture
def misbehave() -> Iterator[Misbehave]:
    """A server that lists a model and answers every POST with given status, type and body; gives its URL.

    `cut` leaves the body without its end, as a connection that breaks. `models` replaces the body of /v1/models, with
    `models_type`. Bodies of requests are added to `asked`.
    """
    servers: list[http.server.ThreadingHTTPServer] = []

    def start(
        body: bytes = b"",
        status: int = 200,
        type: str = "text/event-stream",
        *,
        cut: bool = False,
        models: bytes = b'{"data": [{"id": "m"}]}',
        models_type: str = "application/json",
        models_status: int = 200,
        asked: list[bytes] | None = None,
    ) -> str:
        requests = [] if asked is None else asked

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/v1/models":
                    self._answer(models_status, models_type, models)
                else:
                    self._answer(404, "text/html", b"<html>not here</html>")

            def do_POST(self) -> None:
                requests.append(self.rfile.read(int(self.headers["content-length"])))
                self._answer(status, type, body, missing=100 if cut else 0)

            def _answer(self, status: int, type: str, body: bytes, missing: int = 0) -> None:
                self.send_response(status)
                self.send_header("content-type", type)
                self.send_header("content-length", str(len(body) + missing))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
