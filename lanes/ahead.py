"""Which rounds are queued before the one in flight is read, so that the device need not wait for the host."""

from __future__ import annotations

from collections.abc import Sequence

from tfjax.lanes.asking import Asking
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.drafter import Ask
from tfjax.lanes.flight import Flight
from tfjax.lanes.planning import Planner, Start
from tfjax.lanes.room import Room
from tfjax.lanes.roster import Roster
from tfjax.lanes.window import Window

NOT_YET: tuple[Sequence[Window], Sequence[Ask]] = (), ()


class Ahead:
    """Plans the round behind a forward in flight, where whatever that gives cannot make it useless for all streams.

    Streams without drafts need nothing but their next tokens for that. Others can where the target lands windows: what
    each keeps, and so where the next one begins, is then known on the device first. Such a round may leave out streams
    that end, and take in some that have nothing in flight.
    """

    def __init__(self, asking: Asking, planner: Planner, room: Room, roster: Roster, drafted: Drafted | None) -> None:
        self._asking = asking
        self._planner = planner
        self._room = room
        self._roster = roster
        self._drafted = drafted

    @property
    def in_any_company(self) -> bool:
        """Whether the target takes windows behind any that are in flight, so that no company keeps it waiting."""
        return self._drafted is not None and self._drafted.lands and self._drafted.held_on_target

    def plan(self, flight: Flight) -> tuple[Sequence[Window], Sequence[Ask]]:
        """The windows of the next round, and what drafts were queued for it; no windows where it has to wait."""
        starts = self._any_starts(flight) if self.in_any_company else self._whole_starts(flight)
        if not starts or not all(map(self._has_room, starts)):
            return NOT_YET
        if flight.is_plain and self._are_plain(starts):
            return [start.window(0) for start in starts], ()
        if self._drafted is not None and self.in_any_company:
            return self._plan_drafts(self._drafted, starts)
        return NOT_YET

    def _are_plain(self, starts: Sequence[Start]) -> bool:
        """Whether there can be drafts for none of them. What follows a known text has to be looked for."""
        joining = [start.stream for start in starts if start.behind is None]
        behind = [start.stream for start in starts if start.behind is not None]
        return all(stream.proposer is None for stream in joining) and self._asking.may_pass(behind)

    def _whole_starts(self, flight: Flight) -> list[Start]:
        """Of the flight's own streams, if these are all and none of them ends.

        Not in company where drafts are read by the host: rounds with drafts would have to make up for that, too.
        """
        starts = _behind(flight)
        whole = len(starts) == len(flight.windows) == len(self._roster.running)
        return starts if whole and (len(starts) == 1 or self._drafted is None) else []

    def _any_starts(self, flight: Flight) -> list[Start]:
        """Of all streams that can have rows in the next round, in flight or not.

        One that is not in flight although it was asked for drafts waits for its turn; then the others wait as well.
        """
        in_flight = {window.stream for window in flight.windows}
        joining = [stream for stream in self._roster.decoding if stream not in in_flight and not stream.cancelled]
        starts = _behind(flight) + [Start(stream) for stream in joining]
        waiting = self._roster.any_paused or any(stream.offer is not None for stream in joining)
        return [] if waiting or not self._planner.fits(len(starts)) else starts

    def _has_room(self, start: Start) -> bool:
        """Whether the row's place is sure to be in its stream's pages. Forced tokens wait for their turn."""
        stream, behind = start.stream, start.behind
        if stream.forced or (behind is not None and behind.forced):
            return False
        return len(stream.context) + start.unread <= self._room.memory.rows(stream)

    def _plan_drafts(self, drafted: Drafted, starts: Sequence[Start]) -> tuple[Sequence[Window], Sequence[Ask]]:
        streams = [start.stream for start in starts]
        able = drafted.able([stream for stream in streams if stream.drafting is not None])
        for start in starts:
            start.stream.unread = start.unread
        try:
            asks = self._asking.prepare_behind(streams, able, len(self._roster.filling))
            if asks is None or not drafted.follow(asks):
                return NOT_YET
            return self._planner.behind(starts), asks
        finally:
            for stream in streams:
                stream.unread = 0


def _behind(flight: Flight) -> list[Start]:
    """Of the flight's streams that are not about to end."""
    return [Start(window.stream, window) for window in flight.windows if _goes_on(window)]


def _goes_on(window: Window) -> bool:
    """Whether the window's stream may need a next one, as far as can be known before it is read."""
    stream = window.stream
    if stream.reason is not None or stream.cancelled:
        return False
    return window.rows > 1 or len(stream.context) + 1 < stream.limit
