from __future__ import annotations

from collections.abc import Callable
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfjax.lanes.acceptance import Acceptance
from tfjax.lanes.depth import DepthRule

STEP_MS = 2.0
MOST = 7


def dear(rows: int) -> float:
    """A forward whose rows cost so much that no draft pays."""
    return 10.0 * rows


def cheap(rows: int) -> float:
    """A forward whose rows cost so little that three drafts pay best under the priors, at 2 ms a draft."""
    return 28.0 + 2.0 * rows


class Timed:
    """A rule that goes through rounds which yield nothing but their time."""

    def __init__(self, forward_ms: Callable[[int], float], most: int = MOST) -> None:
        self.acceptance = Acceptance()
        self.rule = DepthRule(self.acceptance, most)
        self.forward_ms = forward_ms

    def choose(self, room: int = 99, copy_ahead: bool = False) -> int:
        return self.rule.choose(room, self.forward_ms, STEP_MS, copy_ahead)

    def rounds(self, count: int) -> list[int]:
        """What is chosen in each of so many rounds; what is chosen is verified."""
        chosen = []
        for _ in range(count):
            chosen.append(self.choose())
            self.rule.observe(chosen[-1], 0, None)
        return chosen


def model(p: list[float], forward: list[float], step: float, timed: dict[int, float], room: int) -> tuple[int, int]:
    """The best depth including plain, and the best of at least 1, straight from the formulas."""
    excess = [(ms - forward[depth + 1] - step * depth) / (depth + 1) for depth, ms in timed.items()]
    least = max(0.0, min(excess)) if excess else 0.0
    rates = []
    for depth in range(room + 1):
        tokens = 1 + sum(prod(p[:k]) for k in range(1, depth + 1))
        untimed = forward[depth + 1] + step * depth + (depth + 1) * least
        rates.append(tokens / timed.get(depth, untimed))
    deep = 1 + rates[1:].index(max(rates[1:]))
    return (deep if rates[deep] >= 1.05 * rates[0] else 0), deep


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.booleans(), max_size=30),
    st.lists(st.floats(5, 60), min_size=MOST + 2, max_size=MOST + 2).map(sorted),
    st.floats(0, 10),
    st.dictionaries(st.integers(0, MOST), st.floats(5, 100)),
    st.integers(1, MOST + 2),
)
def test_depths_equal_the_formulas(
    landed: list[bool], forward: list[float], step: float, timed: dict[int, float], room: int
) -> None:
    acceptance = Acceptance()
    for number, landing in enumerate(landed):
        acceptance.observe(1 + number % MOST, MOST if landing else number % 3)
    rule = DepthRule(acceptance, MOST)
    for depth, ms in timed.items():
        rule.observe(depth, 0, ms)
    rule.observe(1, 0, None)  # no wait is due
    chances = [acceptance.chance(depth) for depth in range(1, MOST + 1)]
    best, _ = model(chances, forward, step, timed, min(room, MOST))
    if len(timed) % 8 == 6:
        best += 0 < best < min(room, MOST)
    assert rule.choose(room, forward.__getitem__, step) == best
    priors = [0.85, 0.75, 0.70, 0.65, 0.60, 0.55, 0.50]
    _, deep = model(priors, forward, step, timed, min(room, MOST))
    assert rule.under_priors(room, forward.__getitem__, step) == deep


def test_the_depth_with_the_most_tokens_per_millisecond() -> None:
    """1: 1.85/34, 2: 2.4875/38, 3: 2.93375/42, 4: 3.2238/46 against plain 1/30."""
    stream = Timed(cheap)
    assert stream.choose() == 4
    assert stream.choose(room=2) == 2
    assert Timed(cheap, most=3).choose() == 3


def test_no_room_no_drafts() -> None:
    stream = Timed(cheap)
    assert [stream.choose(room) for room in (0, -1)] == [0, 0]
    assert [stream.choose(room, copy_ahead=True) for room in (0, -1)] == [0, 0]
    assert stream.rule.under_priors(0, cheap, STEP_MS) == 0


def test_a_copy_ahead_leaves_one_draft() -> None:
    assert Timed(cheap).choose(copy_ahead=True) == 1


def test_drafts_must_beat_plain_by_five_percent() -> None:
    """One draft yields 1.85 tokens; plain takes 10 ms."""
    for one_ms, depth in ((17.7, 0), (17.5, 1)):
        table = {1: 10.0, 2: one_ms}
        assert DepthRule(Acceptance(), 1).choose(1, table.__getitem__, 0.0) == depth


def test_times_are_a_moving_average_and_replace_the_sum_of_parts() -> None:
    """Plain was seen at 10, then 20 ms, so it counts as 12: one draft of 1.85 tokens pays up to 21.1 ms."""
    for one_ms, depth in ((21.0, 1), (21.3, 0)):
        rule = DepthRule(Acceptance(), 1)
        rule.observe(0, 0, 10.0)
        rule.observe(0, 0, 20.0)
        rule.observe(1, 1, one_ms)
        assert rule.choose(1, lambda rows: 1.0, 1.0) == depth


def test_untimed_depths_take_longer_by_the_least_that_was_seen_per_row() -> None:
    """Plain 4 ms over its parts, two drafts 6 ms over theirs, 2 ms a row: one draft counts as 22 + 2 * 2."""
    rule = DepthRule(Acceptance(), 3)
    rule.observe(0, 0, 14.0)
    rule.observe(2, 0, 40.0)
    table = {1: 10.0, 2: 20.0, 3: 30.0, 4: 40.0}
    assert rule._costs(3, table.__getitem__, 2.0) == pytest.approx([14.0, 22.0 + 4.0, 40.0, 46.0 + 8.0])


def test_untimed_depths_are_never_cheaper_than_their_parts() -> None:
    rule = DepthRule(Acceptance(), 1)
    rule.observe(0, 0, 5.0)
    assert rule._costs(1, dear, 2.0) == [5.0, 22.0]


def test_a_round_that_took_no_time_was_not_timed() -> None:
    rule = DepthRule(Acceptance(), 1)
    rule.observe(0, 0, 0.0)
    rule.observe(1, 0, None)
    assert rule._costs(1, dear, 2.0) == [10.0, 22.0]


def test_every_eighth_round_goes_one_deeper() -> None:
    assert Timed(cheap).rounds(24) == [4] * 7 + [5] + [4] * 7 + [5] + [4] * 7 + [5]


def test_the_deeper_probe_keeps_to_the_room() -> None:
    stream = Timed(cheap)
    stream.rounds(7)
    assert [stream.choose(room) for room in (4, 5)] == [4, 5]
    assert Timed(cheap, most=4).rounds(8) == [4] * 8


def test_plain_rounds_advance_the_probe_clock() -> None:
    stream = Timed(cheap)
    for _ in range(7):
        stream.rule.observe(0, 0, None)
    assert stream.choose() == 5


def test_where_drafts_do_not_pay_there_is_one_after_8_plain_rounds_and_then_ever_more_rarely() -> None:
    chosen = Timed(dear).rounds(600)
    tried = [number for number, depth in enumerate(chosen) if depth]
    assert set(chosen) == {0, 1}
    gaps = [after - before - 1 for before, after in zip([-1, *tried], tried, strict=False)]
    assert gaps == [8, 16, 32, 64, 128, 128, 128]


def test_a_depth_that_pays_resets_the_wait() -> None:
    stream = Timed(dear)
    stream.rounds(60)
    stream.forward_ms = cheap
    assert stream.choose() == 4
    stream.forward_ms = dear
    assert stream.rounds(9) == [0] * 8 + [1]


def test_choosing_again_moves_no_clock() -> None:
    often, once = Timed(dear), Timed(dear)
    for _ in range(40):
        assert {often.choose() for _ in range(3)} == {once.choose()}
        for stream in (often, once):
            stream.rule.observe(once.choose(), 0, None)
    often, once = Timed(cheap), Timed(cheap)
    for _ in range(20):
        assert {often.choose() for _ in range(3)} == {once.choose()}
        for stream in (often, once):
            stream.rule.observe(4, 0, None)


def test_a_try_whose_round_was_plain_is_made_in_the_next() -> None:
    """The round was under way when a lone stream asked ahead."""
    stream = Timed(dear)
    stream.rounds(8)
    assert stream.choose() == 1
    stream.rule.observe(0, 0, None)
    assert stream.choose() == 1
    stream.rule.observe(1, 0, None)
    assert stream.rounds(17) == [0] * 16 + [1]


def test_a_try_that_is_cut_again_counts_as_made() -> None:
    stream = Timed(dear)
    stream.rounds(8)
    for _ in range(2):
        assert stream.choose() == 1
        stream.rule.observe(0, 0, None)
    assert stream.rounds(17) == [0] * 16 + [1]
    for _ in range(32):
        stream.rule.observe(0, 0, None)
    for _ in range(2):
        assert stream.choose() == 1
        stream.rule.observe(0, 0, None)
    assert stream.choose() == 0


def test_rounds_that_did_not_ask_leave_a_due_try_alone() -> None:
    stream = Timed(dear)
    for _ in range(20):
        stream.rule.observe(0, 0, None)
    for _ in range(5):
        assert stream.choose(room=0) == 0
        stream.rule.observe(0, 0, None)
    assert stream.choose() == 1


def test_the_last_choice_of_a_round_says_whether_it_tried() -> None:
    stream = Timed(dear)
    stream.rounds(8)
    for _ in range(3):
        assert [stream.choose(), stream.choose(room=0)] == [1, 0]
        stream.rule.observe(0, 0, None)
    assert stream.choose() == 1


def test_a_round_that_was_never_asked_for_is_no_try() -> None:
    stream = Timed(dear)
    stream.rule.observe(1, 0, None)
    assert stream.rounds(9) == [0] * 8 + [1]


def test_a_try_ignores_the_clock_of_deeper_probes() -> None:
    stream = Timed(dear)
    for _ in range(15):
        stream.rule.observe(0, 0, None)
    assert stream.choose() == 1


def test_under_the_priors_a_depth_is_found_whatever_was_learned() -> None:
    stream = Timed(cheap)
    for _ in range(100):
        stream.acceptance.observe(1, 0)
    assert stream.choose() == 0
    assert stream.rule.under_priors(99, cheap, STEP_MS) == 4
    assert stream.rule.under_priors(2, cheap, STEP_MS) == 2
    assert stream.rule.under_priors(99, dear, STEP_MS) == 1
