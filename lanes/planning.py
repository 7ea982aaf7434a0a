"""From live streams to the windows of one round."""

from __future__ import annotations

from collections.abc import Sequence

from tfjax.lanes.allocation import share_rows
from tfjax.lanes.holds import MARGIN
from tfjax.lanes.joint_depths import is_held, waiting
from tfjax.lanes.prices import Prices
from tfjax.lanes.room import Room
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Stream
from tfjax.lanes.turns import take_turns
from tfjax.lanes.window import Window


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

    def behind(self, windows: Sequence[Window]) -> list[Window]:
        """The windows of the round after one in flight, of the same streams, with drafts of the drafter alone."""
        chances = [waiting(window.stream) for window in windows]
        granted = self._share(chances, len(windows), any(chances))
        return [window_behind(window, count) for window, count in zip(windows, granted, strict=True)]

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


def window_behind(window: Window, count: int) -> Window:
    """The window that follows whatever this one keeps, with so many drafts of the drafter."""
    return Window(window.stream, window.position + 1, None, held=count)


def _window(stream: Stream, forced: tuple[int, ...], count: int) -> Window:
    position, pending = stream.cache_length, stream.context[-1]
    if count and is_held(stream):
        return Window(stream, position, pending, held=count)
    drafts = () if stream.offer is None else stream.offer.tokens[:count]
    return Window(stream, position, pending, forced + drafts, len(forced))
