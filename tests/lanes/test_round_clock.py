from __future__ import annotations

from typing import Any

import pytest

from tests.lanes.test_flight import window
from tests.stubs import FakeClock
from tfjax.lanes.flight import Flight
from tfjax.lanes.prices import Prices
from tfjax.lanes.round_clock import RoundClock


class Noted(Prices):
    def __init__(self) -> None:
        super().__init__((2, 4), {2: 1.0, 4: 1.0})
        self.seen: list[tuple[int, int, float, int, int]] = []

    def observe(self, rows: int, streams: int, round_ms: float, *, drafting: int = 0, deepest: int = 0) -> None:
        self.seen.append((rows, streams, round(round_ms, 6), drafting, deepest))


def clocked() -> tuple[FakeClock, Noted, RoundClock]:
    clock, prices = FakeClock(), Noted()
    return clock, prices, RoundClock(clock, prices)


def flight(clock: FakeClock, *windows: dict[str, Any], held: tuple[int, int] = (0, 0)) -> Flight:
    return Flight([window(**parts) for parts in windows], None, clock(), held)


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
