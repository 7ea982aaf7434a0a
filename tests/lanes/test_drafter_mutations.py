"""The tests of the drafter's path are tried: each planted fault must turn the test named beside it red."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.lanes import (
    test_ahead,
    test_ahead_pays,
    test_asking,
    test_drafted,
    test_drafter_oracle,
    test_planning,
)
from tests.lanes.planting import GUARDS, Guard, Plant, Plants, ahead, behind, replies, rounds, shortage, turns_red
from tfjax.lanes import ahead as ahead_module
from tfjax.lanes import asking, drafted, planning
from tfjax.lanes.acceptance import Acceptance
from tfjax.lanes.ahead import Ahead
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.flight import Flights
from tfjax.lanes.loop import Lanes
from tfjax.lanes.prices import Prices
from tfjax.lanes.proposer import NOTHING, Proposal
from tfjax.lanes.room import Room
from tfjax.lanes.window import Window

PLANTS = Plants()
caught_by = PLANTS.caught_by


# The wrapper.


@caught_by(replies)
def windows_are_not_absorbed(plant: pytest.MonkeyPatch) -> None:
    real = Drafted.draft
    plant.setattr(Drafted, "draft", lambda self, windows, kept, asks: real(self, [], [], asks))


@caught_by(replies)
def all_rows_are_absorbed(plant: pytest.MonkeyPatch) -> None:
    real = Drafted.draft
    plant.setattr(
        Drafted, "draft", lambda self, windows, kept, asks: real(self, windows, [w.rows for w in windows], asks)
    )


@caught_by(test_drafted.test_a_hold_ends_with_the_next_window_of_its_stream)
def holds_outlive_their_window(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Drafted, "_taken", lambda self, window: self._holds.get(window.stream) if window.held else None)


@caught_by(replies)
def any_id_passes(plant: pytest.MonkeyPatch) -> None:
    real = Drafted.__init__
    plant.setattr(Drafted, "__init__", lambda self, target, drafter, vocab_size: real(self, target, drafter, 1 << 50))


@caught_by(test_drafted.test_missing_drafts_are_filled_up)
def missing_drafts_are_zeros(plant: pytest.MonkeyPatch) -> None:
    real = Drafted._shown

    def shown(self: Drafted, window: Any, hold: Any) -> Any:
        found = real(self, window, hold)
        pending = window.stream.context[-1]
        return replace(found, drafts=tuple(0 if token == pending else token for token in found.drafts))

    plant.setattr(Drafted, "_shown", shown)


@caught_by(test_drafted.test_a_loop_without_drafts_opens_nothing)
def the_drafter_sees_streams_without_drafts(plant: pytest.MonkeyPatch) -> None:
    def prefill_begin(self: Drafted, stream: Any) -> None:
        self.target.prefill_begin(stream)
        self.drafter.open(stream)

    plant.setattr(Drafted, "prefill_begin", prefill_begin)


@caught_by(replies)
def the_drafters_lane_is_not_released(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Drafted, "release", lambda self, stream: self.target.release(stream))


@caught_by(test_drafter_oracle.test_landing_does_not_depend_on_company)
def drafts_go_to_another_stream(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(drafted, "enumerate", lambda asks: reversed([*enumerate([*reversed(asks)])]), raising=False)


@caught_by(ahead)
def rounds_that_ran_ahead_are_not_told(plant: pytest.MonkeyPatch) -> None:
    real = Lanes._ask
    plant.setattr(Lanes, "_ask", lambda self, verified: real(self, verified) if self._flights.next is None else {})


# Rounds behind one that is not read.


@caught_by(behind)
def a_window_in_flight_never_lands(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Window, "land", lambda self: None)


@caught_by(behind)
def the_rows_in_flight_are_forgotten(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Room, "drafts", lambda self, stream: max(0, min(self.most_drafts, stream.room)))
    plant.setattr(Room, "spare_rows", lambda self, stream: self.most_drafts)


@caught_by(behind)
def drafts_follow_the_text_that_is_known(plant: pytest.MonkeyPatch) -> None:
    real = asking.Asking.prepare_behind

    def prepare(self: asking.Asking, *given: Any) -> Any:
        asks = real(self, *given)
        return asks and [replace(ask, unread=0) for ask in asks]

    plant.setattr(asking.Asking, "prepare_behind", prepare)


@caught_by(behind)
def a_stream_that_joins_is_put_behind_a_window_too(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(
        planning.Start,
        "window",
        lambda self, held: Window(self.stream, self.stream.cache_length + (self.behind is not None), None, held=held),
    )


@caught_by(lambda: test_ahead.test_probes_of_drafts_that_never_land_keep_nobody_waiting(3))
def probes_wait_for_the_host(plant: pytest.MonkeyPatch) -> None:
    real = Ahead.plan

    def plan(self: Ahead, flight: Any) -> Any:
        stands = [w.stream.drafting.stand for w in flight.windows if w.stream.drafting]
        return (
            ahead_module.NOT_YET if any(stand.aside and not stand.silent() for stand in stands) else real(self, flight)
        )

    plant.setattr(Ahead, "plan", plan)


@caught_by(lambda: test_ahead_pays.test_a_company_that_stood_aside_comes_back_where_drafts_land_again(8))
def one_streams_drafts_have_to_pay_for_all(plant: pytest.MonkeyPatch) -> None:
    real = asking.Asking._settle_probe

    def settle(self: Any, drafting: Any, outcome: Any, flight: Any, kept: Sequence[int], round_ms: Any) -> None:
        real(self, drafting, outcome, flight, [outcome.kept, *[1] * (len(kept) - 1)], round_ms)

    plant.setattr(asking.Asking, "_settle_probe", settle)


@caught_by(rounds)
def unlucky_streams_never_come_back(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Acceptance, "relax", lambda self, rate: None)


@caught_by(test_ahead.test_none_does_while_tokens_are_forced)
def forced_tokens_are_left_for_later(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Ahead, "_has_room", lambda self, start: True)


@caught_by(test_ahead.test_none_does_where_a_copy_would_go_first)
def copies_are_not_looked_for(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(asking.Asking, "_offer", lambda self, stream: stream.offer or NOTHING)


@caught_by(lambda: test_ahead.test_the_others_of_a_round_in_flight_go_on_when_one_ends(20))
def a_round_in_flight_ends_with_one_of_its_streams(plant: pytest.MonkeyPatch) -> None:
    real = Flights.drop

    def drop(self: Flights, stream: Any) -> None:
        real(self, stream)
        self.next = None

    plant.setattr(Flights, "drop", drop)


@caught_by(test_ahead.test_a_round_in_flight_of_which_nobody_is_left_is_not_read)
def a_window_in_flight_is_not_dropped(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Flights, "drop", lambda self, stream: None)


# Asking and planning.


@caught_by(lambda: test_asking.test_host_drafts_are_asked_for_exactly_once_a_round({}, 4, "mixed"))
def everybody_is_asked_again(plant: pytest.MonkeyPatch) -> None:
    real = asking.Asking.prepare

    def prepare(self: asking.Asking, live: Sequence[Any]) -> Any:
        for stream in live:
            stream.offer = None
        return real(self, live)

    plant.setattr(asking.Asking, "prepare", prepare)


@caught_by(rounds)
def the_drafter_is_asked_for_a_plain_round(plant: pytest.MonkeyPatch) -> None:
    real = asking.Asking.prepare

    def prepare(self: asking.Asking, live: Sequence[Any]) -> Any:
        with plant.context() as inner:
            inner.setattr(Prices, "wants_plain", lambda self, streams: False)
            return real(self, live)

    plant.setattr(asking.Asking, "prepare", prepare)


@caught_by(rounds)
def no_round_is_made_plain(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Prices, "wants_plain", lambda self, streams: False)


@caught_by(test_planning.test_what_it_cost_to_make_drafts_is_spent)
def the_hold_is_paid_twice(plant: pytest.MonkeyPatch) -> None:
    real = planning.share_rows

    def share(chances: Any, fixed: int, most: int, price_ms: Any, **options: Any) -> list[int]:
        dear = lambda rows, drafting, deepest: price_ms(rows, 0, 0) + 500.0 * deepest  # noqa: E731
        return real(chances, fixed, most, dear, **{**options, "held": None, "steps": None})

    plant.setattr(planning, "share_rows", share)


@caught_by(lambda: test_planning.test_a_copy_goes_before_held_drafts_where_it_is_long_enough(2, 7, 2))
def any_copy_goes_first(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Proposal, "goes_first", property(lambda self: bool(self.tokens)))


@caught_by(shortage)
def drafts_need_no_pages(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Room, "spare_rows", lambda self, stream: 1000)
    plant.setattr(Room, "drafts", lambda self, stream: max(0, min(self.most_drafts, stream.room)))


@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_fault_all_is_green(guard: Guard) -> None:
    guard()


@pytest.mark.parametrize(("plant", "guard"), PLANTS.pairs, ids=PLANTS.names)
def test_a_planted_fault_turns_its_test_red(plant: Plant, guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    turns_red(plant, guard, monkeypatch)
