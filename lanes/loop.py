"""The round loop: start what waits, fill prompts, verify windows, accept, cut, commit, tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tfjax.lanes.allocation import share_rows
from tfjax.lanes.backend import Backend
from tfjax.lanes.containment import Contained
from tfjax.lanes.copy_drafts import CopyDrafts
from tfjax.lanes.listener import Listener
from tfjax.lanes.outcome import Outcome, describe, judge
from tfjax.lanes.prices import Prices
from tfjax.lanes.proposer import NOTHING, CheckedProposer, Proposal, Proposer
from tfjax.lanes.roster import Roster
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request, Stream
from tfjax.lanes.turns import next_prompt, take_turns
from tfjax.lanes.window import Window


@dataclass(slots=True)
class Flight:
    """A forward that is queued on the device and not yet read.

    Attributes:
        windows: its rows.
        ticket: the backend's handle to read it by.
        queued_s: when it was queued.
        kept: whether its windows are committed already.
    """

    windows: Sequence[Window]
    ticket: Any
    queued_s: float
    kept: bool = False


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
        self._proposer = proposer or self._copy_drafts
        self._roster = Roster(settings)
        self._prices = Prices(backend.widths, backend.window_ms)
        self._widest = backend.widths[-1]
        self._most_drafts = min(settings.draft_tokens, self._widest - 1)
        self._flight: Flight | None = None
        self._settled_s = 0.0

    # What the owner calls.

    def admit(self, request: Request) -> Stream:
        """Queue a request; it starts once a lane and pages are free. Raises Refused where it could never be served."""
        stream = self._roster.add(request, self._clock())
        if request.drafts and self._most_drafts:
            stream.proposer = CheckedProposer(self._proposer(request), self._settings.vocab_size, request.stop_ids)
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
        flight = self._flight or self._queue(self._plan())
        self._flight = None
        if flight is not None:
            self._flight = self._run_ahead(flight)
            self._settle(flight, timed=not filled)
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
        pool = self._roster.memory.pool
        return pool.size - pool.free

    # The steps of a round.

    def _end_cancelled(self) -> None:
        for stream in [*self._roster.running, *self._roster.waiting]:
            if stream.cancelled:
                self._end(stream, "cancelled")

    def _start_waiting(self) -> None:
        while (stream := self._roster.start_next(self._clock())) is not None:
            with self._contained([stream]):
                self._backend.prefill_begin(stream)

    def _fill_prompt(self) -> bool:
        """Compute one chunk of one prompt. A finished prompt's first token is drawn and sent at once."""
        filling = self._roster.filling
        if not filling:
            return False
        stream = next_prompt(filling)
        prompt, start = stream.request.prompt, stream.cache_length
        stop = min(len(prompt), start + self._backend.chunk_rows[0 if self._roster.decoding else -1])
        with self._contained([stream]):
            self._backend.prefill_step(stream, start, stop)
            stream.cache_length = stop
            if stream.proposer is not None:
                stream.proposer.extend(prompt[start:stop])
            if stop == len(prompt):
                result = self._backend.first(stream)
                stream.times.first_token_s = self._clock()
                outcome = judge(Window(stream, stop - 1, prompt[-1]), result)
                if stream.proposer is not None:
                    stream.proposer.extend(outcome.tokens)
                self._emit(outcome)
        return True

    def _plan(self) -> list[Window]:
        """The windows of the next round: forced tokens go before proposed drafts, and those share the rows left."""
        self._secure_pages()
        live = self._roster.decoding
        if not live:
            return []
        streams = take_turns(live, self._settings.batch_streams, min(self._settings.batch_rows, self._widest))
        forced = [self._forced(stream) for stream in streams]
        proposals = [NOTHING if rows else self._ask(stream) for stream, rows in zip(streams, forced, strict=True)]
        granted = self._share(proposals, len(streams) + sum(map(len, forced)))
        return [
            Window(stream, stream.cache_length, stream.context[-1], rows + proposal.tokens[:count], len(rows))
            for stream, rows, proposal, count in zip(streams, forced, proposals, granted, strict=True)
        ]

    def _secure_pages(self) -> None:
        """Make sure of pages for the next round's rows; as a last resort the newest stream has to go."""
        running, memory = self._roster.running, self._roster.memory
        while running and not memory.secure(running):
            self._end(
                running[-1], "error", f"{memory.shortage(len(running))}; start with a lower --parallel or --context"
            )

    def _forced(self, stream: Stream) -> tuple[int, ...]:
        return tuple(stream.forced)[: min(stream.room, self._widest - 1)] if stream.forced else ()

    def _ask(self, stream: Stream) -> Proposal:
        """Ask for drafts, exactly once a round: a proposer that stays silent for a while counts the asks."""
        if stream.proposer is None:
            return NOTHING
        spare = self._roster.memory.rows(stream) - stream.cache_length - 1
        return stream.proposer.propose(min(self._most_drafts, stream.room, spare))

    def _share(self, proposals: Sequence[Proposal], fixed_rows: int) -> list[int]:
        if self._prices.known:
            chances = [proposal.chances for proposal in proposals]
            return share_rows(chances, fixed_rows, self._widest, self._prices.of_round(len(proposals)))
        chances = [proposal.chances[: self._settings.first_width] for proposal in proposals]
        return share_rows(chances, fixed_rows, self._widest, lambda rows, drafting, deepest: 1.0)

    def _queue(self, windows: Sequence[Window]) -> Flight | None:
        if windows:
            with self._contained([window.stream for window in windows]):
                queued_s = self._clock()
                return Flight(windows, self._backend.verify(windows), queued_s)
        return None

    def _run_ahead(self, flight: Flight) -> Flight | None:
        """Queue a lone plain stream's next forward while its token is still on the device.

        A plain window's one row is kept whatever is drawn, so it is committed before it is read.
        """
        window = flight.windows[0]
        stream = window.stream
        if len(self._roster.running) > 1 or window.rows > 1 or not self._may_run_ahead(stream):
            return None
        with self._contained([stream]):
            self._backend.keep(flight.windows, [1])
            flight.kept = True
            return self._queue([Window(stream, window.position + 1, None)])
        return None

    def _may_run_ahead(self, stream: Stream) -> bool:
        """Whether the round after the one in flight is sure to be wanted, to be plain, and to have a page."""
        return (
            self._settings.run_ahead
            and not stream.forced
            and stream.left >= 2
            and len(stream.context) < self._roster.memory.rows(stream)
            and (stream.proposer is None or stream.proposer.pass_unread())
        )

    def _settle(self, flight: Flight, timed: bool) -> None:
        """Read a forward, accept and cut, commit each window once, and tell."""
        windows = flight.windows
        streams = [window.stream for window in windows]
        if streams[0].reason is not None:
            return  # it failed while running ahead
        with self._contained(streams):
            results = self._backend.read(flight.ticket)
            outcomes = [judge(window, result) for window, result in zip(windows, results, strict=True)]
            if not flight.kept:
                self._backend.keep(windows, [outcome.kept for outcome in outcomes])
            self._observe(flight, timed)
            for outcome in outcomes:
                self._account(outcome, alone=len(windows) == 1)
                self._emit(outcome)

    def _observe(self, flight: Flight, timed: bool) -> None:
        """Learn from the time between two settled rounds, or from queueing to here where the device was idle before."""
        now_s = self._clock()
        if timed:
            rows = sum(window.rows for window in flight.windows)
            self._prices.observe(rows, len(flight.windows), 1000 * (now_s - max(flight.queued_s, self._settled_s)))
        self._settled_s = now_s
        self.rounds += 1

    def _account(self, outcome: Outcome, alone: bool) -> None:
        """Count a verified window and tell the proposer what came of its drafts."""
        window = outcome.window
        stream = window.stream
        stream.last_round = self.rounds
        if not outcome.tokens:
            return
        drafted = len(window.drafts) - window.forced
        stream.counts.add_round(drafted, outcome.accepted, outcome.kept, window.rows)
        for _ in range(min(len(stream.forced), outcome.kept)):
            stream.forced.popleft()
        if stream.proposer is not None:
            stream.proposer.observe(outcome.tokens, drafted, alone)

    # How streams move on and end.

    def _emit(self, outcome: Outcome) -> None:
        stream = outcome.window.stream
        stream.context.extend(outcome.tokens)
        stream.cache_length = outcome.window.position + outcome.kept
        with self._contained([stream]):
            if outcome.tokens:
                self._listener.on_tokens(stream, outcome.tokens, outcome.logprobs)
            if outcome.reason is not None:
                self._end(stream, outcome.reason, outcome.error)

    def _contained(self, streams: Sequence[Stream]) -> Contained:
        """Whatever the block raises ends these streams, and no others."""

        def end_all(error: Exception) -> None:
            for stream in streams:
                if stream.reason is None:
                    self._end(stream, "error", describe(error))

        return Contained("a call for some streams", end_all)

    def _end(self, stream: Stream, reason: str, error: str | None = None) -> None:
        """Drop what the stream has in flight, give back lane and pages, and say why."""
        stream.reason, stream.error = reason, error
        stream.times.finished_s = self._clock()
        flight = self._flight
        if flight is not None and flight.windows[0].stream is stream:
            self._flight = None
            with Contained("dropping a queued window"):
                self._backend.keep(flight.windows, [0])
        if stream.lane >= 0:
            with Contained("releasing a lane"):
                self._backend.release(stream)
        self._roster.remove(stream)
        with Contained("on_finish"):
            self._listener.on_finish(stream)

    def _copy_drafts(self, request: Request) -> Proposer:
        return CopyDrafts(request.least_match, self._settings.first_width, self._most_drafts)
