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
from tfjax.lanes.window import Window

NOT_YET: tuple[Sequence[Window], Sequence[Ask]] = (), ()


class Ahead:
    """Plans the round behind a forward in flight, where whatever that gives cannot make it useless for all streams.

    A lone stream without drafts needs nothing but its next token for that. Others do where the drafter drafts on the
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
        if len(self._roster.running) != len(windows) or not all(map(self._goes_on, windows)):
            return NOT_YET
        if flight.rows == 1 and self._fits(windows[0], 0) and self._asking.may_pass(windows[0].stream):
            return [window_behind(windows[0], 0)], ()
        return NOT_YET if self._drafted is None else self._plan_drafts(self._drafted, windows)

    @staticmethod
    def _goes_on(window: Window) -> bool:
        stream = window.stream
        return stream.reason is None and not (stream.cancelled or stream.forced or window.forced)

    def _fits(self, window: Window, drafts: int) -> bool:
        """Whether reply and pages have room for the next window, with so many drafts, if all of this one is kept."""
        stream = window.stream
        used = len(stream.context) + window.rows + drafts
        return used < stream.limit and used <= self._room.memory.rows(stream)

    def _plan_drafts(self, drafted: Drafted, windows: Sequence[Window]) -> tuple[Sequence[Window], Sequence[Ask]]:
        most = min(drafted.drafter.depth, self._room.most_drafts)
        streams = [window.stream for window in windows]
        possible = all(self._drafts(drafted, window) and self._fits(window, most + 1) for window in windows)
        if not possible or not drafted.can_follow(streams):
            return NOT_YET
        asks = self._asking.prepare_behind(windows)
        if asks is None or not drafted.follow(asks):
            return NOT_YET
        return self._planner.behind(windows), asks

    @staticmethod
    def _drafts(drafted: Drafted, window: Window) -> bool:
        """Whether the drafter works for the stream, is not due for a probe of it, and has positions left."""
        stream, drafter = window.stream, drafted.drafter
        drafting = stream.drafting
        if drafting is None or drafting.asked or (drafting.stand.aside and not drafting.stand.silent()):
            return False
        return len(stream.context) + window.rows + drafter.depth < drafter.context
