from __future__ import annotations

from typing import Any

import pytest

from tests.lanes.test_flight import window
from tests.stubs import FakeClock
from tfjax.lanes.flight import Flight
from tfjax.lanes.holds import UNPRICED, HoldGrid
from tfjax.lanes.prices import Prices
from tfjax.lanes.round_clock import RoundClock


class Noted(Prices):
    def __init__(self, hold_ms: HoldGrid) -> None:
        super().__init__((2, 4), {2: 1.0, 4: 1.0}, hold_ms)
        self.seen: list[tuple[int, int, float, int, int]] = []
        self.ahead: list[bool] = []

    def observe(
        self, rows: int, streams: int, round_ms: float, *, drafting: int = 0, deepest: int = 0, ahead: bool = False
    ) -> None:
        self.seen.append((rows, streams, round(round_ms, 6), drafting, deepest))
        self.ahead.append(ahead)


def clocked(hold_ms: HoldGrid = UNPRICED) -> tuple[FakeClock, Noted, RoundClock]:
    clock, prices = FakeClock(), Noted(hold_ms)
    return clock, prices, RoundClock(clock, prices)


def flight(clock: FakeClock, *windows: dict[str, Any], held: tuple[int, int] = (0, 0), ahead: bool = False) -> Flight:
    return Flight([window(**parts) for parts in windows], None, clock(), held, ahead=ahead)


def test_from_queueing_where_the_device_was_idle() -> None:
    clock, prices, rounds = clocked()
    clock.advance_ms(50)
    queued = flight(clock, {})
    clock.advance_ms(30)
    assert rounds.settle(queued, None) == pytest.approx(30)
    assert prices.seen == [(1, 1, 30.0, 0, 0)]


def test_from_the_round_before_where_it_was_queued_ahead() -> None:
    clock, _, rounds = clocked()
    first = flight(clock, {})
    clock.advance_ms(10)
    ahead = flight(clock, {})
    clock.advance_ms(20)
    assert rounds.settle(first, None) == pytest.approx(30)
    clock.advance_ms(25)
    assert rounds.settle(ahead, None) == pytest.approx(25)


def test_a_round_that_shared_its_time_teaches_nothing_but_ends_there() -> None:
    clock, prices, rounds = clocked()
    first, ahead = flight(clock, {}), flight(clock, {})
    clock.advance_ms(40)
    first.timed = False
    assert rounds.settle(first, None) is None
    clock.advance_ms(5)
    assert rounds.settle(ahead, None) == pytest.approx(5)
    assert len(prices.seen) == 1


@pytest.mark.parametrize(
    ("windows", "held", "seen"),
    [
        ([{}, {}], (0, 0), (2, 2, 7.0, 0, 0)),
        ([{"held": 2}, {}], (1, 2), (4, 2, 7.0, 1, 2)),
        ([{"drafts": (1, 2)}, {}], (0, 0), (4, 2, 7.0, 1, 0)),
        ([{}, {}], (1, 2), None),
    ],
)
def test_what_prices_are_told(windows: list[dict[str, Any]], held: tuple[int, int], seen: Any) -> None:
    """A plain round that paid for drafts says nothing of plain rounds."""
    clock, prices, rounds = clocked()
    queued = flight(clock, *windows, held=held)
    clock.advance_ms(7)
    assert rounds.settle(queued, None) == pytest.approx(7)
    assert prices.seen == ([] if seen is None else [seen])


@pytest.mark.parametrize("held", [((0, 0), (1, 2)), ((1, 2), (0, 0))])
def test_a_round_in_which_the_drafter_began_or_ceased_says_nothing(
    held: tuple[tuple[int, int], tuple[int, int]],
) -> None:
    """Its time has in it what it took to queue the round behind it, of another kind."""
    clock, prices, rounds = clocked()
    for own, behind, known in ((held[0], held[1], False), (held[0], held[0], True)):
        queued = flight(clock, {"held": own[1]}, held=own)
        clock.advance_ms(7)
        assert (rounds.settle(queued, flight(clock, {}, held=behind)) is not None) is known
        assert bool(prices.seen) is known


PRICED = {1: {1: 1.0}}


@pytest.mark.parametrize(
    ("hold_ms", "windows", "ahead", "ms"),
    [
        (PRICED, {"held": 2}, False, 20),
        (PRICED, {"held": 2}, True, 20),
        (PRICED, {"drafts": (1,)}, False, 20),
        (PRICED, {}, True, 16),
        (PRICED, {}, False, 16),
        (UNPRICED, {"held": 2}, False, 16),
        (UNPRICED, {}, False, 16),
    ],
)
def test_what_the_host_did_since_the_round_before_counts_where_drafts_are_priced(
    hold_ms: HoldGrid, windows: dict[str, Any], ahead: bool, ms: float
) -> None:
    """The host tells what was drawn for 4 ms before it queues the next round, which takes 16 more.

    Where there were no drafts that round would have been queued ahead.
    """
    clock, prices, rounds = clocked(hold_ms)
    clock.advance_ms(30)
    rounds.settle(flight(clock, {}), None)
    clock.advance_ms(4)
    queued = flight(clock, windows, held=(1, 2) if "held" in windows else (0, 0), ahead=ahead)
    clock.advance_ms(16)
    assert rounds.settle(queued, None) == pytest.approx(ms)
    assert prices.ahead == [False, ahead]


def test_a_round_after_a_rest_begins_when_it_is_queued() -> None:
    clock, _, rounds = clocked(PRICED)
    rounds.settle(flight(clock, {}), None)
    clock.advance_ms(5000)
    rounds.rest()
    queued = flight(clock, {"held": 2}, held=(1, 2))
    clock.advance_ms(16)
    assert rounds.settle(queued, None) == pytest.approx(16)
