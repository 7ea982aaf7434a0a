"""Runs the server: opens the port at once, loads beside it, serves, and stops as it is told."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import faulthandler
import functools
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, cast

import uvicorn

from tfjax.config import ServeConfig
from tfjax.server.app import build_app
from tfjax.server.logs import configure_logging
from tfjax.server.model import Model, model_of
from tfjax.server.monitor import Monitor
from tfjax.server.port import EnginePort
from tfjax.server.protocol import ServerProtocol, uvicorn_config
from tfjax.server.ready import ready_lines
from tfjax.server.service import Service
from tfjax.terminal import progress_on_stderr

log = logging.getLogger("tfjax.server")

Progress = Callable[[str, float], None]
Load = Callable[[Progress], EnginePort]

OK, FAILED, CANCELLED = 0, 1, 130
CLOSE_S = 5.0
CUT_S = 2.0
AT_ONCE_S = 1.0
FLUSH_S = 0.7


def run_server(config: ServeConfig, load: Load) -> int:
    """Serves until stopped and returns the exit code: 0 stopped as asked, 1 the engine failed, 130 stopped at once.

    The first SIGINT or SIGTERM lets running replies finish for `drain_s`, the second one stops; SIGUSR1 prints the
    stacks of all threads.

    Raises:
        OSError: the address cannot be listened on.
        Exception: what `load` raised.
    """
    listener = listen(config.host, config.port)
    configure_logging(config.log_format)
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, _print_stacks)
    try:
        with asyncio.Runner() as runner:
            code, clean = runner.run(_Run(config, load, listener).run())
    finally:
        listener.close()
    if code != FAILED:
        # What started this process may print lines of its own about the signal, which look like a failure.
        _say_stopped(config.log_format)
    if not clean:
        # A thread may sit in device code, where nothing ends it, and the interpreter's own exit would wait for it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _print_stacks(*_: object) -> None:
    """Runs between two instructions of the main thread, holding the interpreter lock: the frames of the others stand
    still. `faulthandler.register` reads them while they run, and has crashed on it.
    """
    faulthandler.dump_traceback(sys.stderr, all_threads=True)


def _say_stopped(log_format: str) -> None:
    if log_format == "text":
        print("tfjax: stopped", file=sys.stderr, flush=True)
    else:
        log.info("stopped")


def listen(host: str, port: int) -> socket.socket:
    """A bound socket.

    Raises:
        OSError: names the address and the remedy.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise OSError(f"--host: {host!r} is no address of this machine ({error.strerror})") from None
    listener = socket.socket(family, kind, proto)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise OSError(_bind_message(host, port, error)) from None
    listener.setblocking(False)
    return listener


def _bind_message(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use; stop the other server, or choose another with --port N "
            "(make serve PORT=N); 0 takes a free one"
        )
    if error.errno == errno.EACCES:
        return f"port {port} on {host} is not allowed for this user; choose --port 1024 or higher"
    return f"cannot listen on {host} port {port}: {error.strerror}"


def _replies(count: int) -> str:
    return "1 reply" if count == 1 else f"{count} replies"


class _Stop:
    """Counts stop signals."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.now = asyncio.Event()

    def on_signal(self) -> None:
        if self.now.is_set():
            os._exit(CANCELLED)
        (self.now if self.asked.is_set() else self.asked).set()


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling, and with an end that no client can hold up."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn cancels what is still open after a second. A request that waits for its client, to send its body or to
        # read its reply, would spend that on writing an error; cut off before, it sees a client who left.
        wait_s = 0.0 if self.force_exit else FLUSH_S
        timer = asyncio.get_running_loop().call_later(wait_s, self._cut_connections)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()
            self._cut_connections()

    def _cut_connections(self) -> None:
        for connection in list(self.server_state.connections):
            cast("ServerProtocol", connection).transport.abort()


@dataclass(slots=True)
class _Loaded:
    model: Model | None = None
    error: BaseException | None = None


class _Run:
    """One run of the server, from the open port to the exit code."""

    def __init__(self, config: ServeConfig, load: Load, listener: socket.socket) -> None:
        self._config = config
        self._load = load
        self._listener = listener
        self._loaded = _Loaded()

    async def run(self) -> tuple[int, bool]:
        """The exit code, and whether the interpreter may end in its own time."""
        self._service = Service(self._config)
        self._stop = _Stop()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.on_signal)
        server = _Server(uvicorn_config(build_app(self._service), self._config))
        serving = asyncio.create_task(server.serve([self._listener]))
        try:
            code, clean = await self._serve_and_stop()
        finally:
            server.should_exit = True
            server.force_exit = self._stop.now.is_set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(serving, CLOSE_S)
            self._service.workers.close()
        return code, clean

    async def _serve_and_stop(self) -> tuple[int, bool]:
        loading = asyncio.Event()
        done = asyncio.get_running_loop().call_soon_threadsafe
        target = functools.partial(self._load_in_thread, lambda: done(loading.set))
        threading.Thread(target=target, name="tfjax-load", daemon=True).start()
        await _first(loading.wait(), self._stop.asked.wait())
        if not loading.is_set():
            log.warning("stopped while loading (%s)", self._service.phase)
            return CANCELLED, False
        if self._loaded.error is not None:
            raise self._loaded.error
        assert self._loaded.model is not None
        self._service.loaded(self._loaded.model)
        for line in ready_lines(self._config, self._listener.getsockname()[1], self._loaded.model):
            print(line, flush=True)
        monitor = Monitor(self._service)
        watching = asyncio.create_task(monitor.run())
        await _first(self._stop.asked.wait(), monitor.failure.wait())
        await self._drain(monitor)
        watching.cancel()
        if self._stop.now.is_set():
            await self._close_engine(AT_ONCE_S)
            return CANCELLED, False
        clean = await self._close_engine(CLOSE_S)
        return (FAILED if monitor.failure.is_set() else OK), clean

    def _load_in_thread(self, done: Callable[[], object]) -> None:
        try:
            with progress_on_stderr() as show:
                engine = self._load(self._progress(show))
            self._loaded.model = model_of(engine, self._config.alias)
        except BaseException as error:  # noqa: BLE001
            self._loaded.error = error
        with contextlib.suppress(RuntimeError):  # the server has stopped meanwhile
            done()

    def _progress(self, show: Progress) -> Progress:
        def progress(phase: str, fraction: float) -> None:
            self._service.progress(phase, fraction)
            show(phase, fraction)

        return progress

    async def _drain(self, monitor: Monitor) -> None:
        service = self._service
        service.draining = True
        if service.in_flight:
            log.warning(
                "stopping: %s may finish within %g s; a second signal stops at once",
                _replies(service.in_flight),
                self._config.drain_s,
            )
            await _first(service.idle(self._config.drain_s), self._stop.now.wait(), monitor.failure.wait())
        if service.in_flight:
            log.warning("cutting %s", _replies(service.in_flight))
            service.cut()
            await service.idle(CUT_S)

    async def _close_engine(self, timeout_s: float) -> bool:
        assert self._service.engine is not None
        closing = threading.Thread(target=self._service.engine.close, name="tfjax-close", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, timeout_s)
        return not closing.is_alive()


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Waits until one of `waits` ends, and cancels the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
