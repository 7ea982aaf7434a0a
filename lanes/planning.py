"""From live streams to the windows of one round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfjax.lanes.allocation import share_rows
from tfjax.lanes.holds import MARGIN
from tfjax.lanes.joint_depths import is_held, waiting
from tfjax.lanes.prices import Prices
from tfjax.lanes.room import Room
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Stream
from tfjax.lanes.turns import take_turns
from tfjax.lanes.window import Window


@dataclass(frozen=True, slots=True)
class Start:
    """Where a stream's next window starts: behind the one that it has in flight, if any."""

    stream: Stream
    behind: Window | None = None

    @property
    def unread(self) -> int:
        """Rows of the window in flight."""
        return self.behind.rows if self.behind is not None else 0

    def window(self, held: int) -> Window:
        """With so many drafts of the drafter."""
        if self.behind is not None:
            return Window(self.stream, self.behind.position + 1, None, held=held)
        return Window(self.stream, self.stream.cache_length, self.stream.context[-1], held=held)


class Planner:
    """Forced tokens go before drafts, and drafts share the rows that are left."""

    def __init__(self, settings: Settings, prices: Prices, room: Room, most_rows: int) -> None:
        self._settings = settings
        self._prices = prices
        self._room = room
        self._most_rows = most_rows

    def windows(self, live: Sequence[Stream]) -> list[Window]:
        """The windows of the next round. Every live stream has its `offer`."""
        settings = self._settings
        streams = take_turns(live, settings.batch_streams, min(settings.batch_rows, self._most_rows))
        forced = [self._forced(stream) if stream.forced else () for stream in streams]
        chances = [
            () if rows else waiting(stream)[: self._room.spare_rows(stream)]
            for stream, rows in zip(streams, forced, strict=True)
        ]
        drafted = any(stream.drafting is not None and stream.drafting.held for stream in streams)
        granted = self._share(chances, len(streams) + sum(map(len, forced)), drafted)
        return [_window(*parts) for parts in zip(streams, forced, granted, strict=True)]

    def fits(self, streams: int) -> bool:
        """Whether so many can all have a row in one round."""
        return streams <= min(self._settings.batch_streams, self._settings.batch_rows, self._most_rows)

    def behind(self, starts: Sequence[Start]) -> list[Window]:
        """The windows of the round after one in flight, with drafts of the drafter alone."""
        chances = [waiting(start.stream) for start in starts]
        granted = self._share(chances, len(starts), any(chances))
        return [start.window(count) for start, count in zip(starts, granted, strict=True)]

    def _forced(self, stream: Stream) -> tuple[int, ...]:
        return tuple(stream.forced)[: min(stream.room, self._most_rows - 1)]

    def _share(self, chances: Sequence[Sequence[float]], fixed_rows: int, drafted: bool) -> list[int]:
        """How many of its drafts each stream may verify. What it cost to make them is spent, so it counts no more.

        A round that the drafter worked for (`drafted`) would be no measure of a plain one, so it is not made plain;
        that it pays was seen to before. Offers of the host have to beat plain by the same margin.
        """
        streams = len(chances)
        if not self._prices.known:
            first = [chain[: self._settings.first_width] for chain in chances]
            return share_rows(first, fixed_rows, self._most_rows, lambda rows, drafting, deepest: 1.0)
        if not drafted and self._prices.wants_plain(streams):
            return [0] * streams
        price_ms = self._prices.of_round(streams)
        least_rows = self._prices.least_rows(streams) or 0
        return share_rows(
            chances,
            fixed_rows,
            self._most_rows,
            price_ms,
            least_rows=least_rows,
            held=[False] * streams,
            steps=self._prices.steps,
            margin=1.0 if drafted or least_rows else MARGIN,
        )


def _window(stream: Stream, forced: tuple[int, ...], count: int) -> Window:
    if count and is_held(stream):
        return Start(stream).window(count)
    drafts = () if stream.offer is None else stream.offer.tokens[:count]
    return Window(stream, stream.cache_length, stream.context[-1], forced + drafts, len(forced))
