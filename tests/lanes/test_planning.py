from __future__ import annotations

from typing import Any

import pytest

from tests.lanes.company import copy_of, prices_of, room_of, stream_of
from tests.lanes.harness import settings
from tfjax.lanes.planning import Planner
from tfjax.lanes.prices import Prices
from tfjax.lanes.proposer import Proposal
from tfjax.lanes.stream import Stream

FLAT_MS = {2: 30.0, 4: 30.5, 8: 31.0, 16: 31.5, 32: 32.0}
STEEP_MS = {2: 30.0, 4: 90.0, 8: 300.0, 16: 900.0, 32: 2000.0}


def plan(streams: list[Stream], prices: Prices | None = None, most_rows: int = 32, **changes: Any) -> list[list[Any]]:
    """[held, host drafts, forced] of each window."""
    planner = Planner(settings(**changes), prices or prices_of(FLAT_MS), room_of(), most_rows)
    return [[window.held, window.drafts, window.forced] for window in planner.windows(streams)]


def test_held_drafts_go_as_a_number_and_copies_as_tokens() -> None:
    streams = [stream_of(chances=(0.9, 0.8)), stream_of(offer=copy_of(3)), stream_of()]
    assert plan(streams) == [[2, (), 0], [0, (0, 1, 2), 0], [0, (), 0]]


@pytest.mark.parametrize(
    ("count", "match", "held"), [(2, 8, 0), (5, 30, 0), (1, 30, 2), (2, 7, 2), (2, 0, 2), (0, 30, 2)]
)
def test_a_copy_goes_before_held_drafts_where_it_is_long_enough(count: int, match: int, held: int) -> None:
    window = plan([stream_of(chances=(0.9, 0.8), offer=copy_of(count, match))])[0]
    assert window == ([held, (), 0] if held else [0, tuple(range(count)), 0])


def test_forced_tokens_go_before_all_drafts() -> None:
    streams = [stream_of(chances=(0.9, 0.8), forced=(7, 8)), stream_of(offer=copy_of(4), forced=(9,))]
    assert plan(streams) == [[0, (7, 8), 2], [0, (9,), 1]]


def test_forced_tokens_stop_at_the_end_of_the_reply_and_of_the_widest_forward() -> None:
    assert plan([stream_of(forced=range(9), max_new=5, emitted=2)])[0] == [0, (0, 1), 2]
    assert plan([stream_of(forced=range(9))], most_rows=4)[0] == [0, (0, 1, 2), 3]


def test_what_it_cost_to_make_drafts_is_spent() -> None:
    """Drafts that would not be worth their hold are verified all the same, once they are there."""
    dear = prices_of(FLAT_MS, hold_ms={1: {1: 500.0, 8: 4000.0}})
    assert plan([stream_of(chances=(0.9, 0.8))], dear) == [[2, (), 0]]


@pytest.mark.parametrize(("chance", "granted"), [(0.36, (7,)), (0.35, ())])
def test_offers_of_the_host_have_to_beat_plain_by_5_percent(chance: float, granted: tuple[int, ...]) -> None:
    """Two rows more take 31 ms where plain ones take 24: 2.58 tokens would be just as fast, 2.71 are 5 % more."""
    prices = prices_of({2: 23.0, 4: 30.0, 8: 90.0, 16: 300.0, 32: 900.0}, overhead_ms=1.0)
    streams = [stream_of(offer=Proposal((7,), (chance,))) for _ in range(2)]
    assert [drafts for _, drafts, _ in plan(streams, prices)] == [granted, granted]


def test_rows_are_shared_best_first_and_only_where_they_pay() -> None:
    streams = [stream_of(chances=(0.9, 0.3)), stream_of(chances=(0.8, 0.7, 0.1))]
    assert plan(streams, most_rows=5) == [[1, (), 0], [2, (), 0]]
    assert plan(streams, prices_of(STEEP_MS)) == [[0, (), 0], [0, (), 0]]


def test_drafts_without_a_page_are_left_out() -> None:
    stream = stream_of(chances=(0.9, 0.8, 0.7))
    stream.pages = [0, 1]  # eight positions, five of them taken
    assert plan([stream]) == [[3, (), 0]]
    stream.context += [5, 6]
    assert plan([stream]) == [[1, (), 0]]


def test_before_forwards_are_timed_the_first_width_is_the_most() -> None:
    streams = [stream_of(chances=(0.9, 0.8, 0.7)), stream_of(offer=copy_of(5))]
    assert plan(streams, Prices((2, 4), {}), first_width=2) == [[2, (), 0], [0, (0, 1), 0]]


def test_a_learning_round_takes_the_rows_that_it_measures() -> None:
    learning = Prices((2, 4, 8), {2: 30.0, 4: 90.0, 8: 300.0}, learn_rows=True)
    learning.observe(1, 1, 30.0)
    assert plan([stream_of(chances=(0.2, 0.1, 0.05, 0.04))], learning) == [[3, (), 0]], "what its width has room for"
    assert plan([stream_of(chances=(0.2,))], learning) == [[1, (), 0]], "or all there is"


def test_a_plain_round_is_made_where_rows_could_not_be_learned_without() -> None:
    learning = Prices((2, 4, 8), {2: 30.0, 4: 30.0, 8: 30.0}, learn_rows=True)
    for _ in range(2):
        assert plan([stream_of(offer=copy_of(1))], learning) == [[0, (0,), 0]]
        learning.observe(3, 1, 30.0, drafting=1, deepest=2)
    assert plan([stream_of(offer=copy_of(1))], learning) == [[0, (), 0]]


def test_no_plain_round_is_made_of_one_that_the_drafter_worked_for() -> None:
    """Where more streams live than a round takes, some always have drafts; thrown away they would teach nothing."""
    learning = Prices((2, 4, 8), {2: 30.0, 4: 30.0, 8: 30.0}, {1: {1: 1.0}})
    for _ in range(2):
        learning.observe(4, 2, 30.0, drafting=1, deepest=2)
    assert learning.wants_plain(2)
    streams = [stream_of("a", offer=copy_of(1)), stream_of("b", chances=(0.9,))]
    assert plan(streams, learning) == [[0, (0,), 0], [1, (), 0]]


def test_turns_leave_the_drafts_of_the_others_waiting() -> None:
    streams = [stream_of(f"r{number}", chances=(0.9,)) for number in range(3)]
    streams[0].last_round = 5
    planner = Planner(settings(batch_streams=2), prices_of(FLAT_MS), room_of(), 32)
    assert [window.stream.request.id for window in planner.windows(streams)] == ["r1", "r2"]
    assert streams[0].drafting is not None
    assert streams[0].drafting.held == 1
