"""The application on a loopback port, in a thread, for clients that need a real socket."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import uvicorn

from tests.server.fake_engine import FakeEngine
from tfjax.config import ServeConfig
from tfjax.server.app import build_app
from tfjax.server.protocol import uvicorn_config
from tfjax.server.run import listen
from tfjax.server.service import Service


class LiveServer:
    """Serves from construction to `close`."""

    def __init__(self, engine: FakeEngine, config: ServeConfig) -> None:
        self.engine = engine
        self._listener = listen("127.0.0.1", 0)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._config = config
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._started.wait(10)

    async def _serve(self) -> None:
        self.service = Service(self._config, self.engine)
        self._server = uvicorn.Server(uvicorn_config(build_app(self.service), self._config))
        asyncio.get_running_loop().call_later(0.02, self._started.set)
        await self._server.serve([self._listener])
        self.service.workers.close()

    def close(self) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(10)

    def connections(self) -> int:
        """How many connections are open."""
        return len(self._server.server_state.connections)

    def wait_idle(self, timeout_s: float = 5.0) -> None:
        """Waits until the engine has nothing left to do."""
        deadline_s = time.monotonic() + timeout_s
        while self.engine.status().running or self.engine.status().waiting or self.service.in_flight:
            assert time.monotonic() < deadline_s, "requests are left over"
            time.sleep(0.005)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def raw(self, data: bytes) -> bytes:
        """Sends bytes as they are and reads until the server closes."""
        with self.connect() as connection:
            connection.sendall(data)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)
