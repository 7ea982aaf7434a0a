from __future__ import annotations

from typing import Any

import pytest

from tests.lanes.company import WIDTHS, copy_of, drafter_of, prices_of, room_of, stream_of
from tests.lanes.test_joint_depths import aside, depths, learned, stand
from tfjax.lanes.own_depths import OwnDepths
from tfjax.lanes.prices import Prices

FLAT_MS = dict.fromkeys(WIDTHS, 30.0)
STEEP_MS = {2: 30.0, 4: 60.0, 8: 120.0, 16: 300.0, 32: 900.0}


def own(table: Any = FLAT_MS, step_ms: float = 1.0, stands_aside: bool = True, **drafter: Any) -> OwnDepths:
    prices = prices_of(table) if table else Prices(WIDTHS, {})
    return OwnDepths(prices, room_of(), drafter_of(step_ms=step_ms, stands_aside=stands_aside, **drafter))


def best(chances: list[float], table: dict[int, float], step_ms: float) -> int:
    """The rule once more: most tokens per millisecond, and at least 1.05 times those of a plain round."""
    rates, chance, tokens = [], 1.0, 1.0
    for depth in range(9):
        rates.append(tokens / (table[min(width for width in table if width >= depth + 1)] + step_ms * depth))
        chance *= chances[min(depth, len(chances) - 1)]
        tokens += chance
    depth = max(range(1, 9), key=rates.__getitem__)
    return depth if rates[depth] >= 1.05 * rates[0] else 0


@pytest.mark.parametrize("table", [FLAT_MS, STEEP_MS])
@pytest.mark.parametrize("step_ms", [0.0, 1.0, 9.0, 40.0])
@pytest.mark.parametrize("chance", [0.05, 0.3, 0.6, 0.9, 0.99])
def test_each_stream_follows_its_own_rule(table: dict[int, float], step_ms: float, chance: float) -> None:
    streams = [learned(stream_of(), *[chance] * 8), learned(stream_of(), *[0.5] * 8)]
    found = depths(own(table, step_ms).choose(streams), *streams)
    assert found == [best([chance], table, step_ms), best([0.5], table, step_ms)]
    assert [stand(stream).aside for stream in streams] == [count == 0 for count in found]


def test_a_drafter_that_does_not_stand_aside_waits_a_few_rounds_instead() -> None:
    stream = learned(stream_of(), 0.05)
    rule = own(step_ms=40.0, stands_aside=False)
    found = []
    for _ in range(30):
        found += depths(rule.choose([stream]), stream)
        assert stream.drafting is not None
        stream.drafting.rule.observe(found[-1], 0, None)
    assert not stand(stream).aside
    assert found == [0] * 8 + [1] + [0] * 16 + [1] + [0] * 4


@pytest.mark.parametrize("changes", [{"forced": (5,)}, {"max_new": 3, "emitted": 2}])
def test_streams_that_could_not_use_drafts_get_none_and_do_not_stand_aside(changes: dict[str, Any]) -> None:
    stream = stream_of(**changes)
    assert own().choose([stream]) == {}
    assert not stand(stream).aside


def test_a_copy_ahead_leaves_one_draft() -> None:
    stream = learned(stream_of(offer=copy_of(4)), *[0.9] * 8)
    assert depths(own().choose([stream]), stream) == [1]


@pytest.mark.parametrize("context", [3, 5, 7])
def test_no_more_than_the_drafters_context_has_room_for(context: int) -> None:
    stream = learned(stream_of(), *[0.99] * 8)
    assert depths(own(context=context).choose([stream]), stream) == [max(0, context - 5)]


def test_chances_are_those_of_the_whole_chain() -> None:
    stream = learned(stream_of(), 0.9, 0.8)
    assert own(depth=2).choose([stream])[stream] == pytest.approx((0.9, 0.72))


def test_silence_aside_and_a_probe_under_the_priors() -> None:
    for rounds, depth in ((63, 0), (64, best([0.85, 0.75, 0.70, 0.65, 0.60, 0.55, 0.50, 0.50], STEEP_MS, 1.0))):
        stream = learned(aside(stream_of(), rounds), 0.05)
        chosen = own(STEEP_MS).choose([stream])
        assert depths(chosen, stream) == [depth]
        assert stream.drafting is not None
        assert stream.drafting.asked == bool(depth)
    assert chosen[stream][0] == pytest.approx(0.85)


def test_without_room_a_stream_that_stands_aside_uses_up_no_probe() -> None:
    stream = aside(stream_of(forced=(3,)), 64)
    assert own().choose([stream]) == {}
    assert not stand(stream).probing


def test_before_forwards_are_timed_nobody_stands_aside() -> None:
    stream = learned(stream_of(), 0.05)
    assert own(None, step_ms=40.0).choose([stream]) == {}
    assert not stand(stream).aside


def test_a_stream_without_drafts_gets_none() -> None:
    stream = stream_of()
    stream.drafting = None
    assert own().choose([stream]) == {}
