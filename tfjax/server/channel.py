"""Carries events from the engine's thread to the event loop, bounded, without ever blocking the engine."""

from __future__ import annotations

import asyncio
from collections import deque

from tfjax.engine.api import Event, Sink, Tokens

MAX_EVENTS = 256


def merged(first: Tokens, second: Tokens) -> Tokens:
    """Two neighbouring events as one; nothing is lost but the round's edge."""
    logprobs = None
    if first.logprobs is not None or second.logprobs is not None:
        logprobs = (first.logprobs or ()) + (second.logprobs or ())
    return Tokens(first.tokens + second.tokens, first.text + second.text, logprobs, first.text_ends + second.text_ends)


class Channel:
    """Events of several choices in order of arrival.

    When a slow reader lets it fill up, new tokens of a choice are joined to those that wait.
    All methods but the sinks belong to the event loop's thread.
    """

    def __init__(self, max_events: int = MAX_EVENTS) -> None:
        self._loop = asyncio.get_running_loop()
        self._max_events = max_events
        self._items: deque[tuple[int, Event]] = deque()
        self._error: BaseException | None = None
        self._wake = asyncio.Event()
        self._closed = False

    def sink(self, choice: int) -> Sink:
        """What the engine calls for one choice, from its own thread."""

        def put(event: Event) -> None:
            if self._closed:
                return
            try:
                self._loop.call_soon_threadsafe(self._put, choice, event)
            except RuntimeError:
                self._closed = True  # the loop is gone, and every reader with it

        return put

    def fail(self, error: BaseException) -> None:
        """Ends the reader with `error` before anything still waiting here."""
        self._error = error
        self._wake.set()

    def close(self) -> None:
        """Drops everything that comes from now on."""
        self._closed = True
        self._items.clear()

    async def next(self, timeout_s: float) -> tuple[int, Event] | None:
        """The next event, or None after `timeout_s` of silence; raises what `fail` was given."""
        if not self._items and self._error is None:
            self._wake.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            except TimeoutError:
                return None
        if self._error is not None:
            raise self._error
        return self._items.popleft() if self._items else None

    def __len__(self) -> int:
        return len(self._items)

    def _put(self, choice: int, event: Event) -> None:
        if self._closed:
            return
        if isinstance(event, Tokens) and len(self._items) >= self._max_events and self._join(choice, event):
            return
        self._items.append((choice, event))
        self._wake.set()

    def _join(self, choice: int, event: Tokens) -> bool:
        for at in range(len(self._items) - 1, -1, -1):
            of, waiting = self._items[at]
            if of == choice:
                if isinstance(waiting, Tokens):
                    self._items[at] = (choice, merged(waiting, event))
                    return True
                return False
        return False
