"""Forwards under way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
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
        timed: whether its time is its own: no chunk of a prompt was queued since the flight before.
        ahead: whether it was queued before the flight before it was read.
        kept: whether its windows are committed already.
        rows: of all its windows.
        lost: streams whose window in the flight before was never committed, so that the one here is not dropped either.
    """

    windows: Sequence[Window]
    ticket: Any
    began_s: float
    held: tuple[int, int] = (0, 0)
    timed: bool = True
    ahead: bool = False
    kept: bool = False
    lost: set[Stream] = field(default_factory=set)
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        self.rows = sum([window.rows for window in self.windows])

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
        filling: whether a chunk of a prompt was queued since the last flight, so that the next one shares its time.
    """

    def __init__(self, backend: Backend) -> None:
        self.next: Flight | None = None
        self._backend = backend
        self._held = (0, 0)
        self.filling = False

    def take_next(self) -> Flight | None:
        flight, self.next = self.next, None
        return flight

    def note(self, asks: Sequence[Ask]) -> None:
        """The drafter drafts this for the flight that is queued next."""
        self._held = (self._held[0] + len(asks), max([self._held[1], *[ask.depth for ask in asks]]))

    def queue(self, windows: Sequence[Window], began_s: float, *, ahead: bool = False) -> Flight:
        held, self._held = self._held, (0, 0)
        filling, self.filling = self.filling, False
        return Flight(windows, self._backend.verify(windows), began_s, held, timed=not filling, ahead=ahead)

    def land(self, flight: Flight) -> None:
        """`flight`, the one before the next, was read. What was kept before that told where the next windows begin."""
        for window in self.next.windows if self.next and not flight.kept else ():
            window.land()

    def lose(self, streams: Iterable[Stream]) -> None:
        """The flight before the next failed for these streams; those that had nothing in it go on."""
        if self.next is not None:
            self.next.lost.update(streams)

    def drop(self, stream: Stream) -> None:
        """Forget the next window of a stream that ended; its forward is not read where nobody is left in it."""
        flight = self.next
        if flight is None:
            return
        if all(window.stream.reason is not None for window in flight.windows):
            self.next = None
        for window in flight.windows:
            if window.stream is stream and stream not in flight.lost:
                self._backend.keep([window], [0])
