from __future__ import annotations

import pytest

from tfjax.lanes.acceptance import Acceptance


def learned(*windows: tuple[int, int]) -> list[float]:
    """Chances of the first four depths after windows of (drafted, accepted)."""
    acceptance = Acceptance()
    for drafted, accepted in windows:
        acceptance.observe(drafted, accepted)
    return [acceptance.chance(depth) for depth in range(1, 5)]


def test_priors_by_depth_and_the_last_one_goes_on() -> None:
    acceptance = Acceptance()
    chances = [acceptance.chance(depth) for depth in range(1, 10)]
    assert chances == [0.85, 0.75, 0.70, 0.65, 0.60, 0.55, 0.50, 0.50, 0.50]


def test_chain_multiplies_and_a_window_yields_one_token_more_than_its_chain() -> None:
    acceptance = Acceptance()
    assert acceptance.chain(0) == ()
    assert acceptance.chain(3) == pytest.approx((0.85, 0.6375, 0.44625))
    assert acceptance.expected(0) == 1.0
    assert acceptance.expected(2) == pytest.approx(2.4875)


def test_a_draft_that_landed_moves_its_depth_by_15_percent_of_the_way() -> None:
    assert learned((1, 1)) == pytest.approx([0.85 + 0.15 * 0.15, 0.75, 0.70, 0.65])


def test_a_miss_lowers_its_own_depth_and_says_nothing_of_those_past_it() -> None:
    assert learned((4, 1)) == pytest.approx([0.8725, 0.75 * 0.85, 0.70, 0.65])


def test_a_window_that_landed_whole_says_nothing_of_deeper_drafts() -> None:
    assert learned((2, 2)) == pytest.approx([0.8725, 0.7875, 0.70, 0.65])


def test_a_plain_round_says_nothing() -> None:
    assert learned((0, 0)) == [0.85, 0.75, 0.70, 0.65]


def test_depths_are_learned_in_any_order_of_windows() -> None:
    assert learned((1, 0), (3, 3), (2, 1)) == pytest.approx(
        [((0.85 * 0.85) * 0.85 + 0.15) * 0.85 + 0.15, 0.7875 * 0.85, 0.745, 0.65]
    )


def test_no_chance_falls_below_the_floor() -> None:
    chances = learned(*[(1, 0)] * 100)
    assert chances[0] == 0.05


def test_a_stream_recovers_from_the_floor() -> None:
    chances = learned(*[(1, 0)] * 100, *[(1, 1)] * 10)
    assert chances[0] == pytest.approx(1 - 0.95 * 0.85**10)


def test_restoring_lifts_what_was_kept_to_the_priors_and_lowers_nothing() -> None:
    acceptance = Acceptance()
    acceptance.observe(4, 2)
    for _ in range(9):
        acceptance.observe(1, 0)
    landed, missed = acceptance.chance(2), acceptance.chance(3)
    acceptance.restore(2)
    assert landed > 0.75
    assert missed < 0.70
    assert [acceptance.chance(depth) for depth in (1, 2, 3)] == [0.85, landed, missed]


def test_restoring_depths_that_were_never_seen_changes_nothing() -> None:
    acceptance = Acceptance()
    acceptance.restore(8)
    assert [acceptance.chance(depth) for depth in (1, 7, 8, 9)] == [0.85, 0.50, 0.50, 0.50]
