"""What the loop asks its sources of drafts for, and when."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from tests.lanes.drafted_harness import FLAT_MS, GRID_MS, DraftedRun, settings
from tests.lanes.harness import Run, complete, drafter
from tests.lanes.round_model import DEPTH, HOLD_MS, STEP_MS, Crowd, Guess, Model
from tests.stubs import ScriptedProposer, hashed, looping
from tfjax.lanes.copy_drafts import CopyDrafts, copies_for
from tfjax.lanes.stream import Request, Stream
from tfjax.lanes.window import Result

BEYOND_MS = 3.0
"""What rounds take beyond their forward, where the case has a clock."""


class Case:
    """Five streams: two that go on (one with drafts that never land), one forced, one that ends, one that is paused."""

    def __init__(self, priced: bool, limited: bool, granted: bool, forced_in: int) -> None:
        table = {2: 30.0, 4: 31.0, 8: 33.0, **({} if granted else {16: 36.0, 32: 44.0})}
        hold_ms = {1: {1: HOLD_MS, 8: HOLD_MS}} if priced else {}
        self.limit = 12 if limited else 1 << 30
        self.run = DraftedRun(
            settings(),
            "by_place",
            target={"widths": tuple(table), "window_ms": table, "clock": None},
            hold_ms=hold_ms,
            step_ms=STEP_MS,
            stands_aside=False,
            depth=DEPTH,
            context=self.limit,
            lands=lambda stream, position: stream.request.id != "wrong",
        )
        self.model = Model(table, priced)
        crowd = Crowd() if priced else None
        self.guesses = {name: Guess(crowd) for name in ("right", "wrong", "forced", "ends", "paused")}
        self.forced_in = forced_in
        self.asked = False
        self.paused = False
        lengths = {"ends": 14}
        self.run.admit(
            *[
                Request(name, (1, 2, 3), lengths.get(name, 80), sampling=hashed(place))
                for place, name in enumerate(self.guesses)
            ]
        )
        memory = self.run.lanes._roster.memory
        memory.secure = self.secure  # type: ignore[method-assign]
        if priced:
            self.read, self.run.backend.read = self.run.backend.read, self.timed_read  # type: ignore[method-assign]
        self.run.lanes._start_waiting()
        for _ in self.guesses:
            filled = self.run.lanes._fill_prompt()
            assert filled is not None
            self.run.lanes._draw_first(filled)
        self.run.lanes._flights.filling = False

    def secure(self, streams: Sequence[Stream]) -> bool:
        self.run.streams["paused"].paused = self.paused
        return True

    def timed_read(self, ticket: int) -> Sequence[Result]:
        self.run.clock.advance_ms(self.model.forward_ms(self.rows) + BEYOND_MS)
        return self.read(ticket)

    @property
    def rows(self) -> int:
        """Of the last forward."""
        return sum(window.rows for window in self.run.backend.forwards[-1])

    def live(self) -> dict[str, Guess]:
        """Streams that a round or ask is for, in the order of their admission."""
        streams = self.run.streams
        return {
            name: guess
            for name, guess in self.guesses.items()
            if streams[name].reason is None and not (name == "paused" and streams[name].paused)
        }

    def room(self) -> dict[str, int]:
        return {
            name: max(0, min(DEPTH, stream.room, self.limit - len(stream.context), max(self.model.widths) - 1))
            for name, stream in self.run.streams.items()
        }

    def step(self, number: int) -> None:
        """One round of the loop and one of the model, held against each other."""
        run, asked = self.run, len(self.run.drafter.holds)
        if number == self.forced_in:
            run.streams["forced"].forced.extend([41, 42])
            self.guesses["forced"].forced = 2
        self.paused = number in (3, 4)
        streams = run.streams
        streams["paused"].paused = self.paused
        expected = [asks] if (asks := self.model.ask(self.live(), self.room())) else []
        asked_for = self.asked or bool(asks)
        planned = self.model.plan(self.live())
        before = {name: len(stream.context) for name, stream in streams.items()}
        run.lanes.round()
        windows = run.backend.forwards[-1]
        assert {w.stream.request.id: len(w.drafts) - w.forced for w in windows} == planned
        for name, count in planned.items():
            guess = self.guesses[name]
            emitted = len(streams[name].context) - before[name]
            landed = min(count, emitted - (name != "ends" or streams[name].reason is None))
            guess.learn(count, 0 if guess.forced else landed, len(planned))
            guess.forced, guess.waiting = len(streams[name].forced), None
        round_ms = self.model.forward_ms(self.rows) + BEYOND_MS
        self.model.sees(len(planned), self.rows, asked_for, round_ms)
        expected += [asks] if (asks := self.model.ask(self.live(), self.room())) else []
        self.asked = bool(asks)
        assert run.drafter.holds[asked:] == expected


@pytest.mark.parametrize("forced_in", [1, 2])
@pytest.mark.parametrize("granted", [False, True])
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("priced", [False, True])
def test_eleven_rounds_of_a_mixed_company(priced: bool, limited: bool, granted: bool, forced_in: int) -> None:
    """`limited`: the drafter's context leaves less room than the depth wanted. `granted`: rows for fewer than asked.

    Where holds have prices the third round is to be plain; a round with forced tokens is none.
    """
    case = Case(priced, limited, granted, forced_in)
    for number in range(11):
        case.step(number)
    counts = {name: stream.counts for name, stream in case.run.streams.items()}
    assert case.run.streams["ends"].reason == "length"
    assert counts["right"].accepted
    assert not counts["wrong"].accepted
    assert counts["paused"].rounds == counts["right"].rounds - 2
    asked = sum(depth for asks in case.run.drafter.holds for _, depth in asks)
    verified = sum(stream.counts.drafted for stream in case.run.streams.values())
    if granted and not priced:
        assert asked > verified + 8, "rows were short of what was asked for"
    if priced and not limited:
        assert verified > 20
    drafted = [any(len(w.drafts) > w.forced for w in windows) for windows in case.run.backend.forwards]
    assert drafted[:3] == [True, True, not priced]


# Proposals of the host.


class Counted(ScriptedProposer):
    """Notes in which round it was asked."""

    def __init__(self, request: Request, mode: str) -> None:
        super().__init__(request, mode)
        self.rounds: list[int] = []

    def propose(self, most: int) -> Any:
        self.rounds.append(len(self.observed))
        return super().propose(most)


@pytest.mark.parametrize("hold_ms", [GRID_MS, {}])
@pytest.mark.parametrize("company", [1, 4])
@pytest.mark.parametrize("mode", ["perfect", "wrong", "empty", "mixed"])
def test_host_drafts_are_asked_for_exactly_once_a_round(hold_ms: Any, company: int, mode: str) -> None:
    made: list[Counted] = []

    def proposer(request: Request) -> Counted:
        made.append(Counted(request, mode))
        return made[-1]

    run = DraftedRun(settings(), "mixed", proposer, target={"window_ms": FLAT_MS}, hold_ms=hold_ms, step_ms=1.0)
    asks = [Request(f"r{number}", (1, 2, 3, number), 50, sampling=hashed(number)) for number in range(company)]
    run.admit(*asks)
    run.finish()
    run.check_serial(*asks)
    for source in made:
        assert source.rounds == list(range(len(source.observed)))


def cadence(run: Run) -> list[tuple[int, tuple[int, ...]]]:
    return [(position, drafts) for _, position, drafts in run.backend.draft_windows]


@pytest.mark.parametrize("script", [looping(4, 1, slip=11), looping(5, 2, slip=4), looping(3, 3), hashed(4, 3)])
def test_copies_keep_their_pace_beside_a_drafter_that_has_nothing(script: Any) -> None:
    """Silences of a copy that failed, asks and widths are those of a loop that has copies alone."""
    ask = Request("r", tuple(range(20)), 200, sampling=script, least_match=4)
    alone = complete([ask], settings(run_ahead=False, first_width=3))
    proposer = lambda request: copies_for(3, 31, request)  # noqa: E731
    for fills in (None, lambda stream: False):
        run = DraftedRun(settings(run_ahead=False, first_width=3), "empty", proposer, depth=1, fills=fills)
        run.drafter.depth = 0
        run.admit(ask)
        run.finish()
        run.check_serial(ask)
        assert cadence(run) == cadence(alone)
        assert run.streams["r"].counts == alone.streams["r"].counts


def test_a_failed_copy_is_silent_for_as_many_asks_with_a_drafter_as_without() -> None:
    class Noted(CopyDrafts):
        def propose(self, most: int) -> Any:
            found = super().propose(most)
            offered.append(len(found.tokens) > 0)
            return found

    script = looping(4, 1, slip=2)
    for run_kind in ("alone", "with a drafter"):
        offered: list[bool] = []
        proposer = lambda request: Noted(4, 1, 1)  # noqa: E731
        if run_kind == "alone":
            run = Run(settings(run_ahead=False), proposer)
        else:
            target = {"window_ms": FLAT_MS}
            run = DraftedRun(settings(run_ahead=False), "empty", proposer, target=target, step_ms=1.0)
        run.admit(Request("r", tuple(range(9)), 230, sampling=script))
        run.finish()
        silences = [len(part) for part in "".join(".+"[one] for one in offered).split("+") if part]
        assert max(silences) >= 16


# Clocks that plain rounds move.


def test_an_empty_unpriced_round_advances_the_probe_clock() -> None:
    run = DraftedRun(settings(), "wrong", target={"window_ms": FLAT_MS}, step_ms=30.0, stands_aside=False)
    run.admit(Request("r", (1, 2, 3), 100, sampling=hashed(1)))
    drafted_at = []
    while run.lanes.round():
        windows = run.backend.forwards[-1] if run.backend.forwards else ()
        drafted_at += [len(run.backend.forwards) for window in windows if window.drafts]
    gaps = [after - before for before, after in pairwise(drafted_at)]
    assert drafted_at[0] == 9, "after a wait of eight plain rounds"
    assert gaps == [17, 33], "each try that changes nothing doubles the wait"


def test_a_forced_stream_asks_for_nothing_and_its_plain_rounds_count() -> None:
    for hold_ms in ({}, GRID_MS):
        run = DraftedRun(settings(), "perfect", target={"window_ms": FLAT_MS}, hold_ms=hold_ms, step_ms=30.0)
        run.drafter.stands_aside = False
        run.admit(Request("r", (1, 2, 3), 200, sampling=hashed(1)))
        run.lanes.round()
        stream = run.streams["r"]
        drafting = stream.drafting
        assert drafting is not None
        stream.forced.extend([5] * 90)
        at = len(run.drafter.holds)
        waited = drafting.rule._plain_rounds
        chances = drafting.acceptance.chain(4)
        before = stream.counts.drafted
        run.lanes.round()
        assert len(run.drafter.holds) == at
        assert drafting.rule._plain_rounds == waited + 1 or not drafting.rule._plain_rounds
        assert drafting.acceptance.chain(4) == chances
        assert stream.counts.drafted == before


# Running ahead.


@pytest.mark.parametrize("hold_ms", [GRID_MS, {}])
def test_past_the_drafters_context_a_lone_stream_runs_ahead(hold_ms: Any) -> None:
    run = DraftedRun(settings(), "perfect", target={"window_ms": FLAT_MS}, hold_ms=hold_ms, context=30)
    ask = Request("r", (1, 2, 3), 80, sampling=hashed(1))
    run.admit(ask)
    run.finish()
    run.check_serial(ask)
    late = [windows[0] for windows in run.backend.forwards if windows[0].position > 30]
    assert len(late) > 45
    assert all(window.pending is None for window in late[1:])
    assert any(window.pending is not None and window.rows > 2 for windows in run.backend.forwards for window in windows)


# Without costs of a drafter nothing changes.


@pytest.mark.parametrize("mode", ["perfect", "mixed", "wrong", "garbage", "copy"])
@pytest.mark.parametrize("company", [1, 2, 5])
@pytest.mark.parametrize("table", [{}, FLAT_MS, {2: 23.0, 4: 26.0, 8: 31.0, 16: 44.0, 32: 65.0, 64: 110.0}])
def test_a_drafter_that_never_drafts_leaves_the_classic_loop(mode: str, company: int, table: dict[int, float]) -> None:
    """Window for window what a target alone does with the same offers."""
    asks = [
        Request(f"r{number}", tuple(range(number, number + 7)), 60, sampling=looping(3 + number, number, slip=9))
        for number in range(company)
    ]
    proposer = (lambda request: copies_for(1, 31, request)) if mode == "copy" else drafter(mode)
    alone = complete(asks, settings(run_ahead=False), proposer, window_ms=table)
    run = DraftedRun(settings(run_ahead=False), "empty", proposer, target={"window_ms": table, "clock": None})
    run.drafter.context = 0
    run.admit(*asks)
    run.finish()
    run.check_serial(*asks)

    def rounds(run: Run) -> list[list[tuple[str, int, tuple[int, ...]]]]:
        return [[(w.stream.request.id, w.position, w.drafts) for w in windows] for windows in run.backend.forwards]

    assert rounds(run) == rounds(alone)
