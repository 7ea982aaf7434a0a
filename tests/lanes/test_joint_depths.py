from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.lanes.company import WIDTHS, copy_of, drafter_of, prices_of, room_of, stream_of
from tfjax.lanes.aside import StandAside
from tfjax.lanes.joint_depths import LOOK_EVERY, JointDepths, drafter_room, fixed_rows, is_held, waiting
from tfjax.lanes.prices import Prices
from tfjax.lanes.stream import Stream

FLAT_MS = dict.fromkeys(WIDTHS, 30.0)
WINDOW_MS = {2: 23.0, 4: 26.0, 8: 31.0, 16: 44.0, 32: 65.0}
CHEAP = {1: {1: 1.0, 8: 2.0}}
DEAR = {1: {1: 60.0, 8: 80.0}}


def learned(stream: Stream, *chances: float) -> Stream:
    assert stream.drafting is not None
    stream.drafting.acceptance._chances = list(chances)
    stream.drafting.acceptance._seen = [0] * len(chances)
    return stream


def stand(stream: Stream) -> StandAside:
    assert stream.drafting is not None
    return stream.drafting.stand


def joint(prices: Prices, most_rows: int = 32, **drafter: Any) -> JointDepths:
    return JointDepths(prices, room_of(), drafter_of(**drafter), most_rows)


def depths(chosen: Any, *streams: Stream) -> list[int]:
    return [len(chosen.get(stream, ())) for stream in streams]


# Who gets how many.


def test_each_stream_gets_what_its_own_drafts_are_worth() -> None:
    sure, doubtful = learned(stream_of(), *[0.95] * 8), learned(stream_of(), 0.6, 0.3, 0.05, 0.05)
    hopeless = learned(stream_of(), 0.05, 0.05)
    live = [sure, doubtful, hopeless]
    by_row = {rows: 30.0 + rows for rows in range(1, 33)}
    assert depths(joint(prices_of(by_row, hold_ms=CHEAP)).choose(live, live), *live) == [8, 1, 0]
    assert not stand(hopeless).aside, "the round pays; it only goes without this time"


def test_chances_are_those_of_the_whole_chain() -> None:
    stream = learned(stream_of(), 0.9, 0.8, 0.5)
    chosen = joint(prices_of(FLAT_MS, hold_ms=CHEAP), depth=3).choose([stream], [stream])
    assert chosen[stream] == pytest.approx((0.9, 0.72, 0.36))


def test_drafts_that_do_not_pay_by_the_margin_are_not_asked_for() -> None:
    """A draft that lands half the time may take up to 1.5 / 1.05 of a plain round, which is 30 ms."""
    for hold, asked in ((12.8, True), (12.9, False)):
        stream = learned(stream_of(), 0.5)
        chosen = joint(prices_of(FLAT_MS, hold_ms={1: {1: hold}}), depth=1).choose([stream], [stream])
        assert bool(chosen) == asked
        assert stand(stream).aside != asked


@pytest.mark.parametrize(("filling", "asked"), [(0, True), (1, False), (7, False)])
def test_drafts_have_to_pay_for_those_that_wait_for_their_prompts_too(filling: int, asked: bool) -> None:
    """Of two streams then, one draft may take 2.5 / 2 / 1.05 of a plain round. Nobody stands aside for it."""
    stream = learned(stream_of(), 0.5)
    rule = joint(prices_of(FLAT_MS, hold_ms={1: {1: 12.0}}), depth=1)
    assert bool(rule.choose([stream], [stream], filling)) == asked
    assert not stand(stream).aside
    if filling:
        assert rule.choose([stream], [stream]), "they are asked for once nobody waits"


def test_a_probe_in_flight_is_not_repeated() -> None:
    stream = learned(stream_of(), 0.5)
    stand(stream).aside = stand(stream).probing = True
    rule = joint(prices_of(FLAT_MS, hold_ms=CHEAP))
    assert rule.choose([stream], [stream])
    stream.unread = 3
    assert rule.choose([stream], [stream]) == {}
    assert stream.drafting is not None
    assert not stream.drafting.asked
    stream.unread = 1
    assert rule.choose([stream], [stream]), "what is in flight is a plain window"


def test_where_the_whole_round_does_not_pay_all_stand_aside() -> None:
    live = [learned(stream_of(), 0.05), learned(stream_of(), 0.1)]
    assert joint(prices_of(WINDOW_MS, hold_ms=DEAR)).choose(live, live) == {}
    assert [stand(stream).aside for stream in live] == [True, True]


def test_a_newcomer_does_not_stand_aside_because_others_have_better_drafts_waiting() -> None:
    """Its drafts fit into no width that pays beside those of the others."""
    old = [stream_of(chances=(0.97, 0.94, 0.91)) for _ in range(4)]
    new = learned(stream_of(offer=None), 0.4, 0.2)
    chosen = joint(prices_of(WINDOW_MS, hold_ms=CHEAP), most_rows=17).choose([new], [*old, new])
    assert depths(chosen, new) == [0]
    assert not stand(new).aside


def test_drafts_that_wait_already_count_with_their_hold() -> None:
    """The others' hold is paid for in any case, so joining it costs a newcomer little."""
    flat_hold = {1: {1: 12.0, 8: 12.0}}
    alone, beside = learned(stream_of(), 0.45), learned(stream_of(), 0.45)
    prices = prices_of(FLAT_MS, hold_ms=flat_hold)
    company = [stream_of(chances=(0.9,)), beside]
    assert depths(joint(prices, depth=1).choose([beside], company), beside) == [1]
    bare = [stream_of(), alone]
    assert depths(joint(prices, depth=1).choose([alone], bare), alone) == [0]


@pytest.mark.parametrize("most_rows", [3, 4, 6, 9])
def test_no_more_rows_than_the_widest_forward(most_rows: int) -> None:
    live = [learned(stream_of(), *[0.95] * 8) for _ in range(2)]
    found = depths(joint(prices_of(FLAT_MS, hold_ms=CHEAP), most_rows).choose(live, live), *live)
    assert sum(found) == most_rows - 2


# Who gets none.


@pytest.mark.parametrize(
    "changes", [{"forced": (5,)}, {"max_new": 3, "emitted": 2}, {"offer": copy_of(3)}, {"offer": copy_of(2, 8)}]
)
def test_streams_that_could_not_use_drafts_are_not_asked_for(changes: dict[str, Any]) -> None:
    stream = stream_of(**changes)
    assert joint(prices_of(FLAT_MS, hold_ms=CHEAP)).choose([stream], [stream]) == {}
    assert not stand(stream).aside


@pytest.mark.parametrize("offer", [copy_of(1), copy_of(5, 7)])
def test_a_copy_that_does_not_go_first_leaves_the_drafter_its_part(offer: Any) -> None:
    stream = learned(stream_of(offer=offer), *[0.99] * 8)
    assert depths(joint(prices_of(FLAT_MS, hold_ms=CHEAP)).choose([stream], [stream]), stream)[0] > 5


def test_a_copy_worth_more_than_the_drafts_is_left_in_place() -> None:
    stream = learned(stream_of(offer=copy_of(8, 7)), 0.3)
    assert joint(prices_of(FLAT_MS, hold_ms=CHEAP)).choose([stream], [stream]) == {}


def test_a_stream_without_drafts_is_counted_and_not_asked_for() -> None:
    off, on = stream_of(), learned(stream_of(), *[0.95] * 8)
    off.drafting = None
    assert depths(joint(prices_of(FLAT_MS, hold_ms=CHEAP)).choose([off, on], [off, on]), off, on)[0] == 0


@pytest.mark.parametrize(("context", "most"), [(100, 8), (11, 6), (6, 1), (5, 0), (2, 0)])
def test_the_end_of_the_drafters_context(context: int, most: int) -> None:
    assert drafter_room(stream_of(), room_of(), drafter_of(context=context)) == most


# Aside, probes, exploring.


def aside(stream: Stream, rounds: int) -> Stream:
    stand(stream).stand()
    for _ in range(rounds):
        stand(stream).plain_round(asked=False)
    return stream


def test_a_stream_that_stands_aside_is_silent_until_its_probe() -> None:
    for rounds, asked in ((63, False), (64, True)):
        stream = learned(aside(stream_of(), rounds), 0.05)
        chosen = joint(prices_of(WINDOW_MS, hold_ms=CHEAP)).choose([stream], [stream])
        assert bool(chosen) == asked
        assert stream.drafting is not None
        assert stream.drafting.asked == stand(stream).probing == asked


def test_a_probe_drafts_as_if_nothing_had_been_learned() -> None:
    """Three rows more come at next to nothing here, and five do not: as deep as priors say, not as 0.05 does."""
    stream = learned(aside(stream_of(), 64), 0.05)
    table = {2: 30.0, 4: 30.0, 8: 90.0, 16: 300.0, 32: 600.0}
    chosen = joint(prices_of(table, hold_ms=CHEAP)).choose([stream], [stream])
    assert chosen[stream] == pytest.approx((0.85, 0.85 * 0.75, 0.85 * 0.75 * 0.7))


def test_a_probe_that_is_not_worth_it_goes_as_deep_as_is_best_if_it_is_cheap_enough() -> None:
    for hold, depth in ((1.0, 1), (7.4, 1), (7.6, 0)):
        stream = aside(stream_of(), 64)
        company = [stream, *[aside(stream_of(), 5) for _ in range(7)]]
        prices = prices_of({16: 30.0, 32: 60.0}, hold_ms={1: {1: hold}})
        assert depths(joint(prices, depth=1).choose(company, company), stream) == [depth]
        assert stand(stream).probing


def test_now_and_then_one_deeper_where_that_is_cheap() -> None:
    found = []
    for rounds in range(16):
        stream = learned(stream_of(), 0.9, 0.05)
        assert stream.drafting is not None
        stream.drafting.rounds = rounds
        chosen = joint(prices_of(WINDOW_MS, hold_ms={1: {1: 1.0, 2: 2.0, 8: 8.0}})).choose([stream], [stream])
        found.append(len(chosen[stream]))
        if rounds % 8 == 7:
            assert chosen[stream] == pytest.approx((0.9, 0.9)), "as likely as the one before it"
    assert found == ([1] * 7 + [2]) * 2


def test_not_deeper_where_that_costs_much() -> None:
    stream = learned(stream_of(), 0.9, 0.05)
    assert stream.drafting is not None
    stream.drafting.rounds = 7
    steep = {2: 23.0, 4: 60.0, 8: 90.0, 16: 300.0, 32: 600.0}
    assert depths(joint(prices_of(steep, hold_ms=CHEAP)).choose([stream], [stream]), stream) == [1]
    assert depths(joint(prices_of(FLAT_MS, hold_ms=CHEAP), depth=1).choose([stream], [stream]), stream) == [1]


# What waits.


def test_what_waits_for_the_next_window() -> None:
    held, both = stream_of(chances=(0.9,)), stream_of(chances=(0.9,), offer=copy_of(2))
    assert (is_held(held), waiting(held)) == (True, (0.9,))
    assert (is_held(both), waiting(both)) == (False, copy_of(2).chances)
    weak = stream_of(chances=(0.9,), offer=copy_of(1))
    assert (is_held(weak), waiting(weak)) == (True, (0.9,))
    unasked = stream_of(offer=None)
    assert (is_held(unasked), waiting(unasked)) == (False, ())
    unasked.drafting = None
    assert (is_held(unasked), waiting(unasked)) == (False, ())


def test_fixed_rows_are_those_of_pending_and_forced_tokens() -> None:
    assert fixed_rows([stream_of(), stream_of(forced=(1, 2)), stream_of(chances=(0.9,))]) == 5


# Where the drafter says how sure it is.


def weighed_before(stream: Stream, *chains: Sequence[float]) -> Stream:
    """A stream whose earlier holds turned out so."""
    assert stream.drafting is not None
    for chain in chains:
        stream.drafting.confidence.sureness.observe(chain)
    return stream


def four(*chains: Sequence[float]) -> list[Stream]:
    return [weighed_before(learned(stream_of(), 0.25, 0.25), *chains) for _ in range(4)]


HALF = ((0.9,), (0.05,), (0.1,), (0.02,))
ROWS_COST_MS = {rows: 20.0 + 2.0 * rows for rows in range(1, 33)}


def test_a_hold_pays_for_what_is_left_of_it() -> None:
    """By the mean a draft brings 0.25 tokens for 2 ms where a plain round brings 4 for 28; its likely quarter 0.9."""
    prices = prices_of(ROWS_COST_MS, hold_ms=CHEAP)
    blind, knowing = four(), four(*HALF)
    assert depths(joint(prices, depth=1).choose(blind, blind), *blind) == [0, 0, 0, 0]
    assert depths(joint(prices, depth=1).choose(knowing, knowing), *knowing) == [1, 1, 1, 1]
    assert not any(stand(stream).aside for stream in knowing)


def test_what_is_asked_for_counts_as_likely_as_drafts_land() -> None:
    live = four(*HALF)
    chosen = joint(prices_of(ROWS_COST_MS, hold_ms=CHEAP), depth=1).choose(live, live)
    assert set(chosen.values()) == {(0.25,)}


def test_confidences_that_tell_nothing_change_nothing() -> None:
    """Every draft is as likely as drafts are on average, so none can be left out; and the margin stays."""
    for hold, asked in ((12.8, True), (12.9, False)):
        stream = weighed_before(learned(stream_of(), 0.5), (0.5,))
        chosen = joint(prices_of(FLAT_MS, hold_ms={1: {1: hold}}), depth=1).choose([stream], [stream])
        assert bool(chosen) == asked


@pytest.mark.parametrize(("granted", "asked"), [(None, 6), (0, 2), (1, 3), (4, 6)])
def test_two_drafts_more_than_were_of_use_last_time(granted: int | None, asked: int) -> None:
    stream = weighed_before(learned(stream_of(), *[0.3] * 6), (0.9, 0.85, 0.8, 0.75, 0.7, 0.65), (0.1,) * 6)
    assert stream.drafting is not None
    stream.drafting.confidence.granted = granted
    prices = prices_of(ROWS_COST_MS, hold_ms={1: {1: 0.1, 8: 0.1}})
    assert depths(joint(prices, depth=6).choose([stream], [stream]), stream) == [asked]


def test_one_whose_drafts_are_never_likely_is_asked_for_one_now_and_then() -> None:
    good = [weighed_before(learned(stream_of(), *[0.9] * 4), [0.9, 0.8, 0.7, 0.6]) for _ in range(2)]
    bad = weighed_before(learned(stream_of(), 0.05, 0.05), [0.05])
    chooser = joint(prices_of(ROWS_COST_MS, hold_ms=CHEAP), depth=4)
    asked = [depths(chooser.choose([*good, bad], [*good, bad]), bad)[0] for _ in range(16)]
    assert asked == [*[0] * 7, 1] * 2


def test_the_better_way_is_looked_for_again_after_some_rounds() -> None:
    stream = weighed_before(learned(stream_of(), *[0.9] * 4), [0.9, 0.8, 0.7, 0.6])
    chooser = joint(prices_of(ROWS_COST_MS, hold_ms=CHEAP), depth=4)
    chooser.choose([stream], [stream])
    assert not chooser._drops
    weighed_before(learned(stream, *[0.5] * 4), *[[0.95] * 4, [0.1] * 4] * 40)
    for _ in range(LOOK_EVERY):
        chooser.choose([stream], [stream])
    assert chooser._drops
