"""Forwards under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfjax.lanes.backend import Backend
from tfjax.lanes.drafter import Ask
from tfjax.lanes.stream import Stream
from tfjax.lanes.window import Window


@dataclass(slots=True)
class Flight:
    """A forward that is queued on the device and not yet read.

    Attributes:
        windows: its rows.
        ticket: the backend's handle to read it by.
        began_s: when its round began: before the drafts for it were waited for.
        held: streams that the drafter drafted for since the flight before, and the most drafts of one of them.
        kept: whether its windows are committed already.
    """

    windows: Sequence[Window]
    ticket: Any
    began_s: float
    held: tuple[int, int] = (0, 0)
    kept: bool = False

    @property
    def rows(self) -> int:
        return sum(window.rows for window in self.windows)

    @property
    def is_plain(self) -> bool:
        """Whether every window has one row."""
        return self.rows == len(self.windows)

    @property
    def drafting(self) -> int:
        """Streams whose drafts it verifies."""
        return self.held[0] or sum(len(window.drafts) > window.forced for window in self.windows)


class Flights:
    """Queues forwards on a backend.

    Attributes:
        next: the one queued behind the one that is about to be read.
    """

    def __init__(self, backend: Backend) -> None:
        self.next: Flight | None = None
        self._backend = backend
        self._held = (0, 0)

    def take_next(self) -> Flight | None:
        flight, self.next = self.next, None
        return flight

    def note(self, asks: Sequence[Ask]) -> None:
        """The drafter drafts this for the flight that is queued next."""
        self._held = (self._held[0] + len(asks), max([self._held[1], *[ask.depth for ask in asks]]))

    def queue(self, windows: Sequence[Window], began_s: float) -> Flight:
        held, self._held = self._held, (0, 0)
        return Flight(windows, self._backend.verify(windows), began_s, held)

    def land(self, flight: Flight) -> None:
        """`flight`, the one before the next, was read. What was kept before that told where the next windows begin."""
        for window in self.next.windows if self.next and not flight.kept else ():
            window.land()

    def drop(self, stream: Stream) -> None:
        """Forget the next window of a stream that ended; its forward is not read where nobody is left in it."""
        windows = self.next.windows if self.next else ()
        if all(window.stream.reason is not None for window in windows):
            self.next = None
        for window in windows:
            if window.stream is stream:
                self._backend.keep([window], [0])
