"""Which rounds are queued before the one in flight is read, so that the device need not wait for the host."""

from __future__ import annotations

from collections.abc import Sequence

from tfjax.lanes.asking import Asking
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.drafter import Ask
from tfjax.lanes.flight import Flight
from tfjax.lanes.planning import Planner, window_behind
from tfjax.lanes.room import Room
from tfjax.lanes.roster import Roster
from tfjax.lanes.stream import Stream
from tfjax.lanes.window import Window

NOT_YET: tuple[Sequence[Window], Sequence[Ask]] = (), ()


class Ahead:
    """Plans the round behind a forward in flight, where whatever that gives cannot make it useless for all streams.

    Streams without drafts need nothing but their next tokens for that. Others can where the drafter drafts on the
    device: what each window keeps, and so where the next one begins, is then known there first.
    """

    def __init__(self, asking: Asking, planner: Planner, room: Room, roster: Roster, drafted: Drafted | None) -> None:
        self._asking = asking
        self._planner = planner
        self._room = room
        self._roster = roster
        self._drafted = drafted

    def plan(self, flight: Flight) -> tuple[Sequence[Window], Sequence[Ask]]:
        """The windows of the next round, and what drafts were queued for it; no windows where it has to wait."""
        windows = flight.windows
        if not self._are_all(windows) or not all(map(self._goes_on, windows)):
            return NOT_YET
        if self._may_go_plain(flight) and all(self._asking.may_pass(window.stream) for window in windows):
            return [window_behind(window, 0) for window in windows], ()
        return self._plan_drafts(self._drafted, windows) if self._drafted is not None and self._lands else NOT_YET

    @property
    def _lands(self) -> bool:
        return self._drafted is not None and self._drafted.lands

    def _are_all(self, windows: Sequence[Window]) -> bool:
        """Whether these are of all streams, but for those that fill their prompts.

        Whose prompt is filled gets its first token behind the round that ran ahead: worth it where the device would
        wait for the host otherwise.
        """
        filling = len(self._roster.filling) if self._lands else 0
        return len(self._roster.running) == len(windows) + filling

    def _may_go_plain(self, flight: Flight) -> bool:
        """Not in company where rounds with drafts cannot run ahead: these would have to make up for that, too."""
        alone = len(flight.windows) == 1
        return flight.rows == len(flight.windows) and (alone or self._drafted is None or self._lands)

    def _goes_on(self, window: Window) -> bool:
        """Whether the stream may need a next round, whose place is then known on the device and in its pages."""
        stream = window.stream
        if stream.reason is not None or stream.cancelled or stream.forced or window.forced:
            return False
        most = len(stream.context) + window.rows
        return most <= self._room.memory.rows(stream) and (window.rows > 1 or most < stream.limit)

    def _plan_drafts(self, drafted: Drafted, windows: Sequence[Window]) -> tuple[Sequence[Window], Sequence[Ask]]:
        streams = [window.stream for window in windows]
        most = drafted.drafter.context
        if not all(_is_drafted(stream, most) for stream in streams) or not drafted.can_follow(streams):
            return NOT_YET
        for window in windows:
            window.stream.unread = window.rows
        try:
            asks = self._asking.prepare_behind(streams)
            if asks is None or not drafted.follow(asks):
                return NOT_YET
            return self._planner.behind(windows), asks
        finally:
            for stream in streams:
                stream.unread = 0


def _is_drafted(stream: Stream, context: int) -> bool:
    """Whether the drafter, which works with `context` positions, sees the stream, and no probe is under way or due."""
    drafting = stream.drafting
    if drafting is None or drafting.asked:
        return False
    return not drafting.stand.aside or drafting.stand.silent() or len(stream.context) >= context
