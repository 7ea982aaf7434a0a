"""The tests of the drafter's path are tried: each planted fault must turn the test named beside it red."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.lanes import (
    test_aside_loop,
    test_asking,
    test_drafted,
    test_drafter_oracle,
    test_joint_depths,
    test_never_loses,
    test_own_depths,
    test_planning,
)
from tests.stubs import BrokenContractError
from tfjax.lanes import asking, drafted, joint_depths, own_depths, planning
from tfjax.lanes.acceptance import Acceptance
from tfjax.lanes.aside import StandAside
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.joint_depths import JointDepths
from tfjax.lanes.loop import Lanes
from tfjax.lanes.proposer import Proposal
from tfjax.lanes.room import Room

Guard = Callable[[], Any]
Plant = Callable[[pytest.MonkeyPatch], None]
PLANTS: list[tuple[Plant, Guard]] = []


def caught_by(guard: Guard) -> Callable[[Plant], Plant]:
    def note(plant: Plant) -> Plant:
        PLANTS.append((plant, guard))
        return plant

    return note


# What has to notice.


def replies() -> None:
    for kind in ("priced", "own depths"):
        test_drafter_oracle.test_company_that_comes_and_goes("mixed", kind)
        test_drafter_oracle.test_company_that_comes_and_goes("hostile", kind)
        test_drafter_oracle.test_forced_tokens_amid_drafts(kind, 5)
    test_drafter_oracle.test_the_last_places_of_target_and_drafter(2)


def rounds() -> None:
    for priced in (False, True):
        for limited in (False, True):
            test_asking.test_seven_rounds_of_a_mixed_company(priced, limited, True)


def text() -> None:
    for kind in ("priced", "own depths"):
        test_aside_loop.test_driven_aside_and_back(kind, 1)


def ahead() -> None:
    test_aside_loop.test_a_lone_stream_that_stands_aside_runs_ahead("priced")
    test_aside_loop.test_running_ahead_changes_no_round_of_it("priced")


def gaps() -> None:
    test_aside_loop.test_unpredictable_text_stays_aside_with_probes_further_and_further_apart("priced")


def shortage() -> None:
    for pages in (14, 18):
        test_drafter_oracle.test_short_of_pages("priced", pages, 1)


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
    plant.setattr(Lanes, "_ask", lambda self, verified: real(self, verified) if self._flight is None else {})


# Asking.


@caught_by(lambda: test_asking.test_host_drafts_are_asked_for_exactly_once_a_round({}, 4, "mixed"))
def everybody_is_asked_again(plant: pytest.MonkeyPatch) -> None:
    real = asking.Asking.prepare

    def prepare(self: asking.Asking, live: Sequence[Any]) -> Any:
        for stream in live:
            stream.offer = None
        return real(self, live)

    plant.setattr(asking.Asking, "prepare", prepare)


@caught_by(ahead)
def a_stream_that_stands_aside_never_runs_ahead(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(StandAside, "silent", lambda self: False)


@caught_by(ahead)
def running_ahead_goes_over_the_gap(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(StandAside, "silent", lambda self: self.aside)


@caught_by(text)
def every_probe_pays(plant: pytest.MonkeyPatch) -> None:
    real = StandAside.drafted_round
    plant.setattr(
        StandAside, "drafted_round", lambda self, kept, round_ms, plain_ms: real(self, 9 * kept, round_ms, plain_ms)
    )


@caught_by(text)
def no_probe_pays(plant: pytest.MonkeyPatch) -> None:
    real = StandAside.drafted_round
    plant.setattr(StandAside, "drafted_round", lambda self, kept, round_ms, plain_ms: real(self, 1, 9.0, 1.0))


# Joint and own depths.


@caught_by(test_joint_depths.test_drafts_that_do_not_pay_by_the_margin_are_not_asked_for)
def no_margin(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(joint_depths, "pays", lambda tokens, ms, plain, plain_ms: tokens * plain_ms >= plain * ms)


@caught_by(lambda: test_never_loses.test_drafts_that_land_pay("priced", 8, 0.9, 1.3))
def whoever_gets_none_stands_aside(plant: pytest.MonkeyPatch) -> None:
    real = JointDepths._settled

    def settled(self: JointDepths, stream: Any, chain: Any, depth: int, live: Any) -> Any:
        if not depth and not stream.drafting.stand.probing:
            stream.drafting.stand.stand()
        return real(self, stream, chain, depth, live)

    plant.setattr(JointDepths, "_settled", settled)
    test_never_loses.decode_ms.cache_clear()


@caught_by(test_joint_depths.test_where_the_whole_round_does_not_pay_all_stand_aside)
def nobody_stands_aside(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(JointDepths, "_stand_aside", lambda self, streams: None)


@caught_by(replies)
def the_drafters_context_has_no_end(plant: pytest.MonkeyPatch) -> None:
    def room(stream: Any, room: Any, drafter: Any) -> int:
        return max(0, min(room.drafts(stream), drafter.depth))

    plant.setattr(joint_depths, "drafter_room", room)
    plant.setattr(own_depths, "drafter_room", room)


@caught_by(test_joint_depths.test_a_probe_drafts_as_if_nothing_had_been_learned)
def a_probe_goes_by_what_was_learned(plant: pytest.MonkeyPatch) -> None:
    class Pessimist(Acceptance):
        def chain(self, most: int) -> tuple[float, ...]:
            return tuple(0.05**depth for depth in range(1, most + 1))

    plant.setattr(joint_depths, "Acceptance", Pessimist)


@caught_by(rounds)
def waiting_drafts_are_forgotten(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(joint_depths, "waiting", lambda stream: ())
    plant.setattr(planning, "waiting", lambda stream: ())


@caught_by(rounds)
def acceptance_is_not_learned(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Acceptance, "observe", lambda self, drafted, accepted: None)


@caught_by(test_own_depths.test_before_forwards_are_timed_nobody_stands_aside)
def prices_of_nothing_drive_aside(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(own_depths.Prices, "known", property(lambda self: True))
    plant.setattr(own_depths.Prices, "forward_ms", lambda self, rows: 1.0)


# Plans.


@caught_by(test_planning.test_what_it_cost_to_make_drafts_is_spent)
def the_hold_is_paid_twice(plant: pytest.MonkeyPatch) -> None:
    real = planning.share_rows

    def share(chances: Any, fixed: int, most: int, price_ms: Any, **options: Any) -> list[int]:
        dear = lambda rows, drafting, deepest: price_ms(rows, 0, 0) + 500.0 * deepest  # noqa: E731
        return real(chances, fixed, most, dear, **options)

    plant.setattr(planning, "share_rows", share)


@caught_by(lambda: test_planning.test_a_copy_goes_before_held_drafts_where_it_is_long_enough(2, 7, 2))
def any_copy_goes_first(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Proposal, "goes_first", property(lambda self: bool(self.tokens)))


@caught_by(shortage)
def drafts_need_no_pages(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Room, "spare_rows", lambda self, stream: 1000)


# Standing aside.


@caught_by(lambda: test_aside_loop.test_a_probe_survives_a_round_that_was_planned_before_it("priced"))
def a_look_ahead_uses_up_the_probe(plant: pytest.MonkeyPatch) -> None:
    real = StandAside.plain_round

    def plain_round(self: StandAside, asked: bool) -> None:
        self._looked_ahead = self._looked_ahead or self.probing
        real(self, asked)

    plant.setattr(StandAside, "plain_round", plain_round)


@caught_by(lambda: test_aside_loop.test_a_probe_whose_drafts_are_cut_twice_is_given_up("own depths"))
def a_probe_is_never_given_up(plant: pytest.MonkeyPatch) -> None:
    real = StandAside.plain_round
    plant.setattr(StandAside, "plain_round", lambda self, asked: real(self, False))


@caught_by(gaps)
def gaps_stay_as_they_are(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(StandAside, "_wait_longer", lambda self: None)


@caught_by(gaps)
def rounds_aside_are_not_counted(plant: pytest.MonkeyPatch) -> None:
    real = StandAside.plain_round

    def plain_round(self: StandAside, asked: bool) -> None:
        total = self.total_aside_rounds
        real(self, asked)
        self.total_aside_rounds = total

    plant.setattr(StandAside, "plain_round", plain_round)


@pytest.mark.parametrize("guard", dict.fromkeys([replies, rounds, text, ahead, gaps, shortage]))
def test_without_a_fault_all_is_green(guard: Guard) -> None:
    guard()


@pytest.mark.parametrize(("plant", "guard"), PLANTS, ids=[plant.__name__ for plant, _ in PLANTS])
def test_a_planted_fault_turns_its_test_red(plant: Plant, guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    try:
        with pytest.raises((AssertionError, BrokenContractError, pytest.fail.Exception)):
            guard()
    finally:
        test_never_loses.decode_ms.cache_clear()
