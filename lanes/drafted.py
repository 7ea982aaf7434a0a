"""A target and a drafter behind one backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from tfjax.lanes.backend import Backend
from tfjax.lanes.containment import Contained, for_each
from tfjax.lanes.drafter import Ask, Drafter, Guess
from tfjax.lanes.stream import Stream
from tfjax.lanes.window import Result, Window, WindowMismatch


@dataclass(slots=True)
class Dispatch:
    """A queued hold of the drafter.

    Attributes:
        ticket: the drafter's.
        guesses: for every ask, once they were read.
    """

    ticket: Any
    guesses: Sequence[Guess] | None = None


NO_GUESS = Guess(())


@dataclass(slots=True)
class Hold:
    """Drafts that wait for a stream's next window: ask number `index` of a dispatch, or fillers (no dispatch).

    A filler is the pending token standing in for a draft; the target rejects it.
    """

    dispatch: Dispatch | None
    index: int
    depth: int


@dataclass(frozen=True, slots=True)
class Verified:
    """A queued forward.

    Attributes:
        windows: as the loop made them.
        shown: as the target got them; where it takes no held drafts, these are read back into host tokens.
        ticket: the target's.
    """

    windows: tuple[Window, ...]
    shown: tuple[Window, ...]
    ticket: Any


class Drafted:
    """Implements `Backend`: hands everything to the target, and beside it keeps the drafter in step.

    A request with drafts off is never shown to the drafter.
    """

    def __init__(self, target: Backend, drafter: Drafter, vocab_size: int) -> None:
        """`vocab_size` bounds the target's tokens: a draft that is none of them never reaches it from here."""
        self.target = target
        self.drafter = drafter
        self._vocab_size = vocab_size
        self._holds: dict[Stream, Hold] = {}
        self._uncommitted: dict[Stream, list[tuple[Window, Window]]] = {}
        self._filled: dict[Stream, Window] = {}
        self._failed: dict[Stream, Exception] = {}

    # What the target is.

    @property
    def widths(self) -> Sequence[int]:
        return self.target.widths

    @property
    def window_ms(self) -> Mapping[int, float]:
        return self.target.window_ms

    @property
    def chunk_rows(self) -> Sequence[int]:
        return self.target.chunk_rows

    @property
    def broken(self) -> Exception | None:
        return self.target.broken

    @property
    def held_on_target(self) -> bool:
        return self.target.held_on_target

    @property
    def lands(self) -> bool:
        return self.target.lands

    # Prompts.

    def prefill_begin(self, stream: Stream) -> None:
        self.target.prefill_begin(stream)
        if stream.request.drafts:
            self.drafter.open(stream)

    def prefill_step(self, stream: Stream, start: int, stop: int) -> None:
        self.target.prefill_step(stream, start, stop)
        if stream.request.drafts:
            self.drafter.absorb_prompt(stream, start, stop)

    def first(self, stream: Stream) -> Result:
        return self.target.first(stream)

    # Rounds.

    def draft(self, windows: Sequence[Window], kept: Sequence[int], asks: Sequence[Ask]) -> Mapping[Stream, Exception]:
        """Tell the drafter what became of a round's windows, then queue the drafts asked for.

        Called before the round is committed, so that drafting and roll-back overlap. Returns the streams for which
        the drafter failed since the last call; whatever was queued for the others stands.
        """
        drafted = [pair for pair in zip(windows, kept, strict=True) if pair[0].stream.request.drafts]
        for_each(drafted, self._absorb, "the drafter", lambda pair, error: self._fail(pair[0].stream, error))
        self._hold([ask for ask in asks if ask.stream not in self._failed])
        failed, self._failed = self._failed, {}
        return failed

    def able(self, streams: Sequence[Stream]) -> list[Stream]:
        """For which of these the drafter can draft now. One for which it fails is told by the next `draft`."""
        able: list[Stream] = []

        def ask(stream: Stream) -> None:
            if self.drafter.can_draft(stream):
                able.append(stream)

        for_each(streams, ask, "the drafter", self._fail)
        return able

    def follow(self, asks: Sequence[Ask]) -> bool:
        """Queue drafts while windows are in flight, for streams that are `able` to have some.

        False where the drafter failed, which the next `draft` tells.
        """
        if asks:
            self._dispatch(asks)
        return not any(ask.stream in self._failed for ask in asks)

    def _hold(self, asks: Sequence[Ask]) -> None:
        """Queue one dispatch for the asks that the drafter can serve; the others get fillers."""
        able: list[Ask] = []

        def sort(ask: Ask) -> None:
            if self.drafter.can_draft(ask.stream):
                able.append(ask)
            else:
                self._holds[ask.stream] = Hold(None, 0, ask.depth)

        for_each(asks, sort, "the drafter", lambda ask, error: self._fail(ask.stream, error))
        if able:
            self._dispatch(able)

    def _dispatch(self, asks: Sequence[Ask]) -> None:
        with self._contained([ask.stream for ask in asks]):
            dispatch = Dispatch(self.drafter.hold(asks))
            self._holds |= {ask.stream: Hold(dispatch, index, ask.depth) for index, ask in enumerate(asks)}

    def _absorb(self, pair: tuple[Window, int]) -> None:
        """Where fillers stood in, they are host tokens to the drafter too: a text that repeats itself accepts them."""
        window, count = pair
        self.drafter.absorb(self._filled.pop(window.stream, window), count)

    def _fail(self, stream: Stream, error: Exception) -> None:
        self._failed[stream] = error

    def _contained(self, streams: Sequence[Stream]) -> Contained:
        """Whatever the drafter raises in the block is a failure of these streams alone."""
        return Contained("the drafter", lambda error: self._failed.update(dict.fromkeys(streams, error)))

    def confidences(self, streams: Sequence[Stream]) -> dict[Stream, Sequence[float]]:
        """How sure the drafter is of the drafts that wait for these streams, where it says so.

        Waits for the drafts, except where the host never sees them. A stream whose drafts cannot be read has none.
        """
        if self.held_on_target:
            return {}
        holds = {stream: self._holds[stream] for stream in streams if stream in self._holds}
        self._read_back(holds)
        return {stream: said for stream, hold in holds.items() if (said := self._guess(hold).confidences)}

    @staticmethod
    def _guess(hold: Hold) -> Guess:
        read = hold.dispatch.guesses if hold.dispatch else ()
        return read[hold.index] if read else NO_GUESS

    def verify(self, windows: Sequence[Window]) -> Verified:
        """Queue a forward. A stream's hold ends with its next window, whether the window has use for it or not."""
        holds = [self._taken(window) for window in windows]
        if not self.held_on_target:
            self._read_back({window.stream: hold for window, hold in zip(windows, holds, strict=True) if hold})
        shown = [self._shown(window, hold) for window, hold in zip(windows, holds, strict=True)]
        ticket = self.target.verify(shown)
        for window, own in zip(windows, shown, strict=True):
            self._uncommitted.setdefault(window.stream, []).append((window, own))
        return Verified(tuple(windows), tuple(shown), ticket)

    def _taken(self, window: Window) -> Hold | None:
        """The hold that the window uses."""
        hold = self._holds.pop(window.stream, None)
        if not window.held:
            return None
        if hold is None or window.held > hold.depth:
            raise WindowMismatch(f"a window with {window.held} held drafts, and the drafter has {hold} for it")
        return hold

    def _read_back(self, holds: Mapping[Stream, Hold]) -> None:
        """Read the drafts that were not read yet. A dispatch may serve windows of several rounds.

        Where that fails the forward goes on with fillers, since it serves other streams too.
        """
        waiting = [
            (stream, dispatch)
            for stream, hold in holds.items()
            if (dispatch := hold.dispatch) is not None and dispatch.guesses is None
        ]
        if not waiting:
            return
        unread = list({id(dispatch): dispatch for _, dispatch in waiting}.values())
        for dispatch in unread:
            dispatch.guesses = ()
        with self._contained([stream for stream, _ in waiting]):
            read = self.drafter.read([dispatch.ticket for dispatch in unread])
            for dispatch, guesses in zip(unread, read, strict=True):
                dispatch.guesses = guesses

    def _shown(self, window: Window, hold: Hold | None) -> Window:
        """The window for the target: held drafts as host tokens where they were read back or are fillers."""
        if hold is None or (hold.dispatch is not None and self.held_on_target):
            return window
        tokens = tuple(self._guess(hold).tokens[: window.held])
        if tokens and not (min(tokens) >= 0 and max(tokens) < self._vocab_size):
            tokens = tuple(takewhile(lambda token: 0 <= token < self._vocab_size, tokens))
        fillers = (window.stream.context[-1],) * (window.held - len(tokens))
        shown = Window(window.stream, window.position, window.pending, tokens + fillers)
        if fillers:
            self._filled[window.stream] = shown
        return shown

    def read(self, ticket: Verified) -> list[Result]:
        results = self.target.read(ticket.ticket)
        return [
            Result(result.draws, result.logprobs, result.error, shown.drafts)
            if window.held and not shown.held
            else result
            for window, shown, result in zip(ticket.windows, ticket.shown, results, strict=True)
        ]

    def keep(self, windows: Sequence[Window], kept: Sequence[int]) -> None:
        shown = []
        for window in windows:
            waiting = self._uncommitted.get(window.stream)
            if not waiting or waiting[0][0] is not window:
                raise WindowMismatch(f"{window.stream.request.id}: keep() got another window than verify()")
            shown.append(waiting.pop(0)[1])
        self.target.keep(shown, kept)

    def release(self, stream: Stream) -> None:
        self._holds.pop(stream, None)
        self._uncommitted.pop(stream, None)
        self._filled.pop(stream, None)
        self._failed.pop(stream, None)
        try:
            self.target.release(stream)
        finally:
            if stream.request.drafts:
                self.drafter.release(stream)
