"""The tests of how deep drafts go are tried: each planted fault must turn the test named beside it red."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lanes import (
    test_aside_loop,
    test_joint_depths,
    test_never_loses,
    test_own_depths,
)
from tests.lanes.planting import Guard, Plant, Plants, ahead, gaps, replies, rounds, text, turns_red
from tfjax.lanes import acceptance, joint_depths, own_depths, planning
from tfjax.lanes.acceptance import Acceptance, Usual
from tfjax.lanes.aside import StandAside
from tfjax.lanes.joint_depths import JointDepths

PLANTS = Plants()
caught_by = PLANTS.caught_by


# Learning.


@caught_by(rounds)
def what_is_usual_is_ignored(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Usual, "chance", lambda self, depth: Acceptance().chance(depth))


@caught_by(rounds)
def all_streams_learn_fast(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(acceptance, "STEADY_RATE", acceptance.RATE)
    plant.setattr(acceptance, "FIRST_WEIGHT", 1000)


# Joint and own depths.


@caught_by(test_joint_depths.test_drafts_that_do_not_pay_by_the_margin_are_not_asked_for)
def no_margin(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(joint_depths, "pays", lambda tokens, ms, plain, plain_ms, _margin: tokens * plain_ms >= plain * ms)


@caught_by(lambda: test_never_loses.test_drafts_that_land_pay("priced", 8, 0.9, 1.3))
def whoever_gets_none_stands_aside(plant: pytest.MonkeyPatch) -> None:
    real = JointDepths._settled

    def settled(self: JointDepths, stream: Any, chain: Any, depth: int, live: Any, paying: bool) -> Any:
        if not depth and not stream.drafting.stand.probing:
            stream.drafting.stand.stand()
        return real(self, stream, chain, depth, live, paying)

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


# Standing aside.


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


@pytest.mark.parametrize(("plant", "guard"), PLANTS.pairs, ids=PLANTS.names)
def test_a_planted_fault_turns_its_test_red(plant: Plant, guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    turns_red(plant, guard, monkeypatch)
