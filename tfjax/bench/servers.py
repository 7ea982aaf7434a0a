"""Servers that a bench starts for itself and always ends."""

from __future__ import annotations

import collections
import contextlib
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from tfjax.terminal import CommandError

SERVE = (sys.executable, "-P", "-m", "tfjax.serve")
"""-P: what is installed is served, not what lies in the folder one happens to stand in."""

LAST_LINES = 5
END_S = 10.0
_READY = re.compile(r"base_url (http://\S+)/v1")


class OwnServer:
    """One server process on a free port of its own.

    Attributes:
        url: known once `wait` returned.
    """

    def __init__(self, command: Sequence[str], flags: Sequence[str], name: str) -> None:
        self.name = f"server {name}".rstrip()
        self.url = ""
        self._said: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        try:
            self._process = subprocess.Popen(
                [*command, *flags, "--port", "0"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise CommandError(f"{command[0]} cannot be run ({error.strerror}); give a Python with --builds") from None
        self._readers = [
            threading.Thread(target=self._read, args=(pipe, is_out), daemon=True)
            for pipe, is_out in ((self._process.stdout, True), (self._process.stderr, False))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe: IO[str], is_out: bool) -> None:
        with pipe:
            for line in pipe:
                if not is_out:
                    self._said.append(line.rstrip())
                if not self.url:
                    self._lines.put(line)
        if is_out:
            self._lines.put(None)

    def wait(self, timeout_s: float, say: Callable[[str], None]) -> None:
        """Until it serves.

        Raises:
            CommandError: it ended, or took too long; with its last words.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                raise CommandError(
                    f"the {self.name} was not ready within {timeout_s:g} s; raise --ready-s. " + self._last_words()
                ) from None
            if line is None:
                code = self._process.wait()
                for reader in self._readers:
                    reader.join(1.0)
                raise CommandError(f"the {self.name} ended with code {code}. {self._last_words()}")
            ready = _READY.search(line)
            if ready:
                self.url = ready.group(1)
                return
            if line.startswith("tfjax: "):
                say(f"{self.name}: {line.removeprefix('tfjax: ').rstrip()}")

    def close(self) -> None:
        """Ends it: twice SIGINT stops it without waiting for replies, and what does not listen is killed."""
        for _ in range(2):
            if self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    self._process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(0.3)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join(1.0)

    def _last_words(self) -> str:
        return "It said: " + " | ".join(self._said) if self._said else "It said nothing."


@contextlib.contextmanager
def own_servers(
    wanted: Sequence[tuple[str, Sequence[str], Sequence[str]]], ready_s: float, say: Callable[[str], None]
) -> Iterator[list[OwnServer]]:
    """Servers for (name, command, flags), started one after the other. However the block ends, it ends them all."""
    started: list[OwnServer] = []
    with _termination_unwinds():
        try:
            for name, command, flags in wanted:
                started.append(OwnServer(command, flags, name))
                say(f"starting {started[-1].name}: {' '.join(flags)}")
                started[-1].wait(ready_s, say)
            yield started
        finally:
            with _uninterrupted():
                for server in started:
                    server.close()


@contextlib.contextmanager
def _termination_unwinds() -> Iterator[None]:
    """SIGTERM ends this process by an exception, as SIGINT does, so that the servers are ended too."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals belong to the main thread
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C does not leave servers behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
