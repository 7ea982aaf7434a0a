from __future__ import annotations

import pytest

from tfjax.lanes.aside import StandAside


def aside(gap: int = 8) -> StandAside:
    state = StandAside(gap=gap)
    state.stand()
    return state


def armed(gap: int = 8) -> StandAside:
    state = aside(gap)
    for _ in range(gap):
        assert state.ask() == "silent"
        state.plain_round(asked=False)
    assert state.ask() == "probe"
    return state


def test_a_new_stream_is_free_and_waits_64_rounds_once_aside() -> None:
    state = StandAside()
    assert state.ask() == "free"
    assert not state.silent()
    assert (state.aside, state.probing, state.gap, state.probes, state.total_aside_rounds) == (False, False, 64, 0, 0)


def test_the_probe_arms_after_the_gap_and_not_before() -> None:
    state = aside(64)
    asks = []
    for _ in range(66):
        asks.append(state.ask())
        state.plain_round(asked=False)
    assert asks == ["silent"] * 64 + ["probe"] * 2


def test_asking_again_takes_nothing_from_an_armed_probe() -> None:
    state = armed()
    assert [state.ask() for _ in range(5)] == ["probe"] * 5
    assert (state.probing, state.probes) == (True, 0)


# The three cases that the rule is made of.


def test_armed_then_one_plain_round_stays_armed_and_verifying_without_paying_doubles_the_gap() -> None:
    state = armed()
    state.plain_round(asked=True)
    assert state.probing
    assert state.ask() == "probe"
    assert not state.drafted_round(kept=1, round_ms=15.0, plain_ms=10.0)
    assert (state.aside, state.probing, state.aside_rounds, state.gap, state.probes) == (True, False, 0, 16, 1)


def test_armed_then_two_plain_rounds_gives_up() -> None:
    state = armed()
    state.plain_round(asked=True)
    state.plain_round(asked=True)
    assert (state.aside, state.probing, state.aside_rounds, state.gap, state.probes) == (True, False, 0, 16, 1)
    assert state.ask() == "silent"


def test_verified_and_paying_ends_standing_aside() -> None:
    state = armed()
    assert state.drafted_round(kept=2, round_ms=15.0, plain_ms=10.0)
    assert (state.aside, state.probing, state.aside_rounds, state.gap, state.probes) == (False, False, 0, 64, 1)
    assert state.ask() == "free"


# Whole scenarios: each goes wrong where the rule is left out.


def lone_stream(state: StandAside, rounds: int, lands: int, trimmed: bool = False) -> list[int]:
    """The rounds that verified drafts, on a stream that is asked while looking ahead and again with one token more.

    Drafts made while looking ahead come too late for the round that is under way, which stays plain.
    """
    verified = []
    ready = False
    for number in range(rounds):
        ready = ready and state.ask() == "probe"
        if ready and not trimmed:
            verified.append(number)
            state.drafted_round(kept=lands, round_ms=15.0, plain_ms=10.0)
            ready = False
        else:
            looking_ahead = state.ask() == "probe"
            state.plain_round(asked=looking_ahead)
            ready = looking_ahead
        if not state.aside:
            break
    return verified


def test_a_probe_consumed_by_a_look_ahead() -> None:
    """The look-ahead asks first and its round is plain: the probe must still be there for the round after it."""
    state = aside(8)
    assert lone_stream(state, 40, lands=3) == [9]
    assert (state.aside, state.probes, state.total_aside_rounds) == (False, 1, 9)


def test_probes_that_do_not_pay_come_ever_more_rarely() -> None:
    state = aside(8)
    assert lone_stream(state, 100, lands=1) == [9, 9 + 18, 9 + 18 + 34]
    assert (state.aside, state.gap, state.probes) == (True, 64, 3)


def test_a_probe_whose_drafts_are_cut() -> None:
    """Drafts that never reach a window must not leave the stream drafting for nothing in every round."""
    state = aside(8)
    asked = 0
    for _ in range(100):
        probing = state.ask() == "probe"
        asked += probing
        state.plain_round(asked=probing)
    assert asked == 2 * 3
    assert (state.probes, state.gap, state.total_aside_rounds) == (3, 64, 100)
    assert lone_stream(aside(8), 100, lands=9, trimmed=True) == []


# The edges.


def test_rounds_that_did_not_ask_leave_an_armed_probe_alone() -> None:
    state = armed()
    for _ in range(5):
        state.plain_round(asked=False)
    assert state.probing
    state.plain_round(asked=True)
    state.plain_round(asked=False)
    assert state.probing
    state.plain_round(asked=True)
    assert not state.probing


def test_a_look_ahead_of_an_earlier_probe_does_not_count_against_the_next() -> None:
    state = armed()
    state.plain_round(asked=True)
    state.drafted_round(kept=1, round_ms=15.0, plain_ms=10.0)
    for _ in range(16):
        state.plain_round(asked=False)
    assert state.ask() == "probe"
    state.plain_round(asked=True)
    assert state.probing


@pytest.mark.parametrize(
    ("kept", "round_ms", "paid"), [(3, 20.0, True), (2, 20.0, False), (1, 9.5, True), (1, 9.6, False)]
)
def test_paying_is_five_percent_more_tokens_per_millisecond(kept: int, round_ms: float, paid: bool) -> None:
    assert armed().drafted_round(kept, round_ms, plain_ms=10.0) is paid


def test_paying_at_exactly_the_margin() -> None:
    assert armed().drafted_round(kept=21, round_ms=20.0, plain_ms=1.0)


def test_the_gap_stops_at_1024() -> None:
    state = aside(64)
    gaps = []
    for _ in range(6):
        while state.ask() == "silent":
            state.plain_round(asked=False)
        state.drafted_round(kept=1, round_ms=20.0, plain_ms=10.0)
        gaps.append(state.gap)
    assert gaps == [128, 256, 512, 1024, 1024, 1024]


def test_giving_up_stops_at_1024_too() -> None:
    state = armed(1000)
    state.plain_round(asked=True)
    state.plain_round(asked=True)
    assert state.gap == 1024


def test_drafts_verified_without_a_probe_change_nothing() -> None:
    for state in (StandAside(), aside(8)):
        before = repr(state)
        assert not state.drafted_round(kept=9, round_ms=10.0, plain_ms=10.0)
        assert repr(state) == before


def test_plain_rounds_of_a_free_stream_are_not_counted() -> None:
    state = StandAside()
    state.plain_round(asked=True)
    assert (state.aside_rounds, state.total_aside_rounds) == (0, 0)
    state.stand()
    state.plain_round(asked=False)
    assert (state.aside_rounds, state.total_aside_rounds) == (1, 1)


def test_standing_aside_again_starts_from_the_first_gap_and_keeps_the_totals() -> None:
    state = armed()
    state.drafted_round(kept=2, round_ms=15.0, plain_ms=10.0)
    state.stand()
    for _ in range(63):
        state.plain_round(asked=False)
    assert state.ask() == "silent"
    state.plain_round(asked=False)
    assert state.ask() == "probe"
    assert state.total_aside_rounds == 8 + 64


def test_standing_aside_while_aside_does_not_start_over() -> None:
    state = aside(8)
    for _ in range(8):
        state.stand()
        state.plain_round(asked=False)
    state.stand()
    assert state.ask() == "probe"
    state.stand()
    assert state.ask() == "probe"


def test_silence_is_sure_until_the_round_before_the_probe() -> None:
    state = aside(8)
    foreseen = []
    for _ in range(8):
        before = repr(state)
        foreseen.append(state.silent())
        assert repr(state) == before
        state.plain_round(asked=False)
        assert foreseen[-1] is (state.ask() == "silent")
    assert foreseen == [True] * 7 + [False]
    assert not state.silent()


def test_an_armed_probe_needs_no_count_of_rounds() -> None:
    state = StandAside(aside=True, probing=True)
    assert not state.silent()
    assert state.ask() == "probe"


def test_rounds_asked_for_before_the_probe_armed_do_not_count_against_it() -> None:
    state = aside(8)
    for _ in range(8):
        state.plain_round(asked=True)
    assert state.ask() == "probe"
    state.plain_round(asked=True)
    assert (state.probing, state.probes) == (True, 0)
