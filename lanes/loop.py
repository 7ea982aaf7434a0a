"""The round loop: start what waits, fill prompts, verify windows, accept, cut, commit, tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tfjax.lanes.ahead import Ahead
from tfjax.lanes.asking import Asking
from tfjax.lanes.backend import Backend
from tfjax.lanes.containment import Contained, for_each
from tfjax.lanes.copy_drafts import copies_for
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.flight import Flight, Flights
from tfjax.lanes.listener import Listener
from tfjax.lanes.outcome import Outcome, describe, judge
from tfjax.lanes.planning import Planner
from tfjax.lanes.prices import Prices
from tfjax.lanes.prompts import Prompts
from tfjax.lanes.proposer import CheckedProposer, Proposer
from tfjax.lanes.room import Room
from tfjax.lanes.roster import Roster
from tfjax.lanes.round_clock import RoundClock
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request, Stream
from tfjax.lanes.turns import next_prompt
from tfjax.lanes.window import Window


class Lanes:
    """Serves streams on one backend. One thread calls everything but `cancel`.

    Attributes:
        rounds: verify forwards read so far.
    """

    def __init__(
        self,
        backend: Backend,
        clock: Callable[[], float],
        settings: Settings,
        listener: Listener,
        proposer: Callable[[Request], Proposer] | None = None,
    ) -> None:
        """`clock` returns seconds. `proposer` makes the source of one stream's drafts; left out, drafts are copies."""
        self.rounds = 0
        self._backend = backend
        self._clock = clock
        self._settings = settings
        self._listener = listener
        self._roster = Roster(settings)
        self._drafted = backend if isinstance(backend, Drafted) else None
        self._widest = backend.widths[-1]
        self._room = Room(self._roster.memory, min(settings.draft_tokens, self._widest - 1))
        hold_ms = self._drafted.drafter.hold_ms if self._drafted else {}
        self._prices = Prices(backend.widths, backend.window_ms, hold_ms, learn_rows=settings.learn_rows)
        self._proposer = proposer or partial(copies_for, settings.first_width, self._room.most_drafts)
        self._asking = Asking(self._prices, self._room, self._drafted, self._widest)
        self._planner = Planner(settings, self._prices, self._room, self._widest)
        self._ahead = Ahead(self._asking, self._planner, self._room, self._roster, self._drafted)
        self._flights = Flights(backend)
        self._prompts = Prompts(backend, self._roster, clock)
        self._round_clock = RoundClock(clock, self._prices)

    # What the owner calls.

    def admit(self, request: Request) -> Stream:
        """Queue a request; it starts once a lane and pages are free. Raises Refused where it could never be served."""
        if self.idle:
            self._round_clock.rest()
        stream = self._roster.add(request, self._clock())
        if request.drafts and self._room.most_drafts:
            stream.proposer = CheckedProposer(self._proposer(request), self._settings.vocab_size, request.stop_ids)
            self._asking.open(stream)
        return stream

    def cancel(self, stream: Stream) -> None:
        """End a stream before its next round. Any thread may call this, any number of times."""
        stream.cancelled = True

    def round(self) -> bool:
        """Give every stream that can have one its turn. False where there was nothing to do."""
        if self.idle:
            return False
        self._end_cancelled()
        self._start_waiting()
        filled = self._fill_prompt()
        # Where a round is in flight, another one queued before the first token is read keeps the device busy meanwhile.
        later = self._flights.next is not None and self._ahead.in_any_company
        if filled is not None and not later:
            self._draw_first(filled)
        began_s = self._clock()
        flight = self._flights.take_next() or self._queue(self._plan(), began_s)
        if flight is not None:
            self._flights.next = self._run_ahead(flight)
            self._settle(flight)
        if filled is not None and later:
            self._draw_first(filled)
        return True

    @property
    def idle(self) -> bool:
        return not self._roster.running and not self._roster.waiting

    @property
    def running(self) -> int:
        """Streams that hold a lane."""
        return len(self._roster.running)

    @property
    def waiting(self) -> int:
        return len(self._roster.waiting)

    @property
    def pages_held(self) -> int:
        return self._roster.memory.pool.size - self._roster.memory.pool.free

    @property
    def pages_idle(self) -> int:
        """Pages that keep rows for later prompts while nobody holds them."""
        return self._roster.memory.pool.idle

    # The steps of a round.

    def _end_cancelled(self) -> None:
        for stream in [*self._roster.running, *self._roster.waiting]:
            if stream.cancelled:
                self._end(stream, "cancelled")

    def _start_waiting(self) -> None:
        while (stream := self._roster.start_next(self._clock())) is not None:
            with self._contained([stream]):
                self._backend.prefill_begin(stream)
                if stream.proposer is not None:
                    stream.proposer.extend(stream.request.prompt[: stream.cache_length])

    def _fill_prompt(self) -> Stream | None:
        """Queue one chunk of one prompt, and return whose that is."""
        filling = self._roster.filling
        if not filling:
            return None
        stream = next_prompt(filling)
        self._flights.filling = True
        with self._contained([stream]):
            self._prompts.fill(stream)
        return stream

    def _draw_first(self, stream: Stream) -> None:
        """Send the first token after a prompt of which the last chunk was queued."""
        if stream.reason is None and stream.cache_length == len(stream.request.prompt):
            with self._contained([stream]):
                self._tell(self._prompts.draw_first(stream))

    def _plan(self) -> list[Window]:
        self._secure_pages()
        live = self._roster.decoding
        with self._contained(live):
            if any(stream.offer is None for stream in live):
                self._fail(self._ask(()))
                live = self._roster.decoding
            self._asking.weigh(live)
            return self._planner.windows(live) if live else []
        return []

    def _secure_pages(self) -> None:
        """Make sure of pages for the next round's rows; as a last resort the newest stream has to go."""
        while (shortage := self._roster.shortage()) is not None:
            self._end(self._roster.running[-1], "error", f"{shortage}; start with a lower --parallel or --context")

    def _ask(self, verified: Sequence[Outcome]) -> dict[Stream, str]:
        """Get drafts for the next windows of all streams that have none yet; returns whom the drafter failed, and how.

        The drafter is also told what became of the windows of a round that was just read, one that ran ahead too.
        """
        going_on = [outcome for outcome in verified if outcome.reason is None]
        ended = {outcome.window.stream for outcome in verified if outcome.reason is not None}
        live = [stream for stream in self._roster.decoding if stream not in ended]
        asks = self._asking.prepare(live) if self._flights.next is None else []
        if self._drafted is None:
            return {}
        self._flights.note(asks)
        windows, kept = [outcome.window for outcome in going_on], [outcome.kept for outcome in going_on]
        failed = self._drafted.draft(windows, kept, asks)
        return {stream: describe(error) for stream, error in failed.items()}

    def _queue(self, windows: Sequence[Window], began_s: float, *, ahead: bool = False) -> Flight | None:
        if windows:
            with self._contained([window.stream for window in windows]):
                return self._flights.queue(windows, began_s, ahead=ahead)
        return None

    def _run_ahead(self, flight: Flight) -> Flight | None:
        """Queue the next forward while the draws of this one are still on the device.

        A plain window's one row is kept whatever is drawn, so it is committed before it is read.
        """
        if not self._settings.run_ahead:
            return None
        with self._contained([window.stream for window in flight.windows]):
            windows, asks = self._ahead.plan(flight)
            if not windows:
                return None
            self._flights.note(asks)
            if flight.is_plain:
                live = [window for window in flight.windows if window.stream.reason is None]
                self._backend.keep(live, [1] * len(live))
                flight.kept = True
            return self._queue(windows, self._clock(), ahead=True)
        return None

    def _settle(self, flight: Flight) -> None:
        """Read a forward, accept and cut, ask for the next drafts, commit each window once, and tell."""
        windows = [window for window in flight.windows if window.stream.reason is None]
        if not windows:
            return  # all ended since it was queued
        with Contained("a round", lambda error: self._lose(windows, error)):
            results = self._backend.read(flight.ticket)
            outcomes = [
                judge(window, result)
                for window, result in zip(flight.windows, results, strict=True)
                if window.stream.reason is None
            ]
            round_ms = self._round_clock.settle(flight, self._flights.next)
            self.rounds += 1
            kept = [outcome.kept for outcome in outcomes]
            for outcome in outcomes:
                self._account(outcome, flight, kept, round_ms)
                outcome.advance()
            failed = self._commit(flight, outcomes, kept)
            for_each(
                outcomes, self._tell, "telling", lambda one, error: self._fail({one.window.stream: describe(error)})
            )
            self._fail(failed)

    def _lose(self, windows: Sequence[Window], error: Exception) -> None:
        """End the streams of a forward that failed. The one queued behind it is read for those that joined there."""
        self._flights.lose(window.stream for window in windows)
        self._fail({window.stream: describe(error) for window in windows})

    def _commit(self, flight: Flight, outcomes: Sequence[Outcome], kept: Sequence[int]) -> dict[Stream, str]:
        """Ask for drafts, then commit, so that both overlap; returns who cannot go on. Draws are told even so."""
        failed: dict[Stream, str] = {}

        def fail_all(error: Exception) -> None:
            self._flights.lose(outcome.window.stream for outcome in outcomes)
            failed.update({outcome.window.stream: describe(error) for outcome in outcomes})

        with Contained("asking for drafts", fail_all):
            failed |= self._ask(outcomes)
        if not flight.kept:
            with Contained("committing a round", fail_all):
                self._backend.keep([outcome.window for outcome in outcomes], kept)
        self._flights.land(flight)
        return failed

    def _account(self, outcome: Outcome, flight: Flight, kept: Sequence[int], round_ms: float | None) -> None:
        """Count a verified window of a flight that kept so many rows of each, and tell its sources of drafts."""
        window, stream = outcome.window, outcome.window.stream
        stream.last_round = self.rounds
        if not outcome.tokens:
            return
        copied = len(window.drafts) - window.forced
        stream.counts.add_round(window.held + copied, outcome.accepted, len(outcome.tokens), window.rows)
        if stream.proposer is not None:
            stream.proposer.observe(outcome.tokens, copied, len(kept) == 1)
        stream.offer = None
        if stream.drafting is not None:
            self._asking.observe(outcome, stream.drafting, flight, kept, round_ms)

    # How streams move on and end.

    def _tell(self, outcome: Outcome) -> None:
        stream = outcome.window.stream
        if outcome.tokens:
            self._listener.on_tokens(stream, outcome.tokens, outcome.logprobs)
        if outcome.reason is not None:
            self._end(stream, outcome.reason, outcome.error)

    def _contained(self, streams: Sequence[Stream]) -> Contained:
        """Whatever the block raises ends these streams, and no others."""
        return Contained("a call for some streams", lambda error: self._fail(dict.fromkeys(streams, describe(error))))

    def _fail(self, errors: Mapping[Stream, str]) -> None:
        """End the streams among these that have not ended."""
        for stream, error in errors.items():
            if stream.reason is None:
                self._end(stream, "error", error)

    def _end(self, stream: Stream, reason: str, error: str | None = None) -> None:
        """Drop what the stream has in flight, give back lane and pages, and say why."""
        stream.reason, stream.error = reason, error
        stream.times.finished_s = self._clock()
        with Contained("dropping a queued window"):
            self._flights.drop(stream)
        if stream.lane >= 0:
            with Contained("releasing a lane"):
                self._backend.release(stream)
        self._roster.remove(stream)
        with Contained("on_finish"):
            self._listener.on_finish(stream)
