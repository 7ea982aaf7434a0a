"""What a round costs on the host where every stream has a drafter's drafts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.lanes.harness import settings
from tests.lanes.test_host_time import Deaf, InstantBackend
from tests.lanes.yardstick import median_us
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.drafter import Ask, Guess
from tfjax.lanes.loop import Lanes
from tfjax.lanes.proposer import Silent
from tfjax.lanes.stream import Request, Stream
from tfjax.lanes.window import Result, Window

pytestmark = pytest.mark.alone

DEPTH = 8
WIDTHS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
PRICED = {1: {1: 1.0, DEPTH: 1.5}, 128: {1: 2.0, DEPTH: 3.0}}


class SameBackend(InstantBackend):
    """Says one token for ever, in windows of any width at nearly the same time.

    Attributes:
        now_s: the loop's clock, which each forward moves by its price: what is drafted depends on no other load.
    """

    held_on_target = False
    lands = False
    broken = None

    def __init__(self) -> None:
        super().__init__(1)
        self.widths = WIDTHS
        self.window_ms = {width: 30.0 + width / 640 for width in WIDTHS}
        self.draws = [1] * len(self.draws)
        self.now_s = 0.0

    def read(self, ticket: Any) -> Sequence[Result]:
        rows = sum(window.rows for window in ticket)
        self.now_s += self.window_ms[next(width for width in WIDTHS if width >= rows)] / 1000
        return super().read(ticket)


KINDS = pytest.mark.parametrize(
    ("hold_ms", "sure"), [(PRICED, False), (PRICED, True), ({}, False)], ids=["priced", "sure", "own depths"]
)


class InstantDrafter:
    """Always right, at no cost; it may say how sure it is."""

    depth = DEPTH
    context = 1 << 20
    step_ms = 0.0
    stands_aside = True

    def __init__(self, hold_ms: Mapping[int, Mapping[int, float]], sure: bool) -> None:
        self.hold_ms = hold_ms
        self.sure = (0.9,) * DEPTH if sure else ()

    def open(self, stream: Stream) -> None: ...

    def absorb_prompt(self, stream: Stream, start: int, stop: int) -> None: ...

    def can_draft(self, stream: Stream) -> bool:
        return True

    def hold(self, asks: Sequence[Ask]) -> Any:
        return [Guess((1,) * ask.depth, self.sure[: ask.depth]) for ask in asks]

    def read(self, tickets: Sequence[Any]) -> Sequence[Any]:
        return tickets

    def absorb(self, window: Window, kept: int) -> None: ...

    def release(self, stream: Stream) -> None: ...


def drafting(streams: int, drafter: InstantDrafter) -> tuple[Lanes, SameBackend]:
    """A loop whose streams have replies under way, and its backend, which counts their drafts from here on."""
    backend = SameBackend()
    numbers = settings(
        lanes=streams, context=40_000, pages=streams * 2500, page_rows=16, batch_streams=128, batch_rows=128
    )
    drafted = Drafted(backend, drafter, numbers.vocab_size)
    lanes = Lanes(drafted, lambda: backend.now_s, numbers, Deaf(), lambda request: Silent())
    for number in range(streams):
        lanes.admit(Request(f"r{number}", (1,) * 100, 30_000))
    for _ in range(2 * streams):
        lanes.round()
    backend.drafts = 0
    return lanes, backend


def round_us(streams: int, hold_ms: Mapping[int, Mapping[int, float]], sure: bool = False, rounds: int = 100) -> float:
    """Median microseconds (see `yardstick`) of a round in which every stream has 8 drafts, all of which land."""
    lanes, backend = drafting(streams, InstantDrafter(hold_ms, sure))
    taken = median_us(lanes.round, rounds)
    assert lanes.running == streams
    assert backend.drafts >= 0.95 * DEPTH * streams * rounds
    return taken


def test_what_is_drafted_depends_on_no_clock_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: pytest.fail("the machine's clock is read"))
    lanes, backend = drafting(4, InstantDrafter(PRICED, sure=True))
    began_s = backend.now_s
    lanes.round()
    assert backend.now_s > began_s


@pytest.mark.slow
@pytest.mark.parametrize("hold_ms", [PRICED, {}], ids=["priced", "own depths"])
def test_thirty_two_streams_with_eight_drafts_each_take_a_millisecond(hold_ms: Any) -> None:
    assert min(round_us(32, hold_ms) for _ in range(8)) <= 1000


@pytest.mark.slow
def test_confidences_cost_a_third_more_at_most() -> None:
    sure_us, priced_us = (min(round_us(32, PRICED, sure) for _ in range(8)) for sure in (True, False))
    assert sure_us <= 1.33 * priced_us


@pytest.mark.slow
@KINDS
def test_time_is_linear_in_streams(hold_ms: Any, sure: bool) -> None:
    assert min(round_us(128, hold_ms, sure) for _ in range(3)) <= 4 * 1.3 * min(
        round_us(32, hold_ms, sure) for _ in range(3)
    )


@KINDS
def test_a_round_takes_no_more_than_a_busy_machine_explains(hold_ms: Any, sure: bool) -> None:
    assert round_us(32, hold_ms, sure, rounds=30) <= 5000
