from __future__ import annotations

import pytest

from tfjax.lanes.acceptance import Acceptance, Usual
from tfjax.lanes.drafting import Drafting


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


# Learning steadily.


def usual_of(*windows: tuple[int, int]) -> Usual:
    usual = Usual()
    for drafted, accepted in windows:
        usual.observe(drafted, accepted)
    return usual


def chances(source: Acceptance | Usual, most: int = 4) -> list[float]:
    return [source.chance(depth) for depth in range(1, most + 1)]


def test_before_any_window_the_usual_is_the_priors() -> None:
    assert chances(Usual(), 9) == [0.85, 0.75, 0.70, 0.65, 0.60, 0.55, 0.50, 0.50, 0.50]


def test_the_usual_is_half_what_was_seen_which_moves_by_5_percent() -> None:
    """The second of three drafts missed: nothing was seen of the third."""
    seen = [0.85 + 0.05 * 0.15, 0.75 * 0.95]
    assert chances(usual_of((3, 1))) == pytest.approx([(0.85 + seen[0]) / 2, (0.75 + seen[1]) / 2, 0.70, 0.65])
    seen[0] *= 0.95
    assert chances(usual_of((3, 1), (1, 0)), 2) == pytest.approx([(0.85 + seen[0]) / 2, (0.75 + seen[1]) / 2])


def test_a_plain_window_says_nothing_of_what_is_usual() -> None:
    assert chances(usual_of((0, 0))) == chances(Usual())


def test_the_usual_never_falls_below_half_the_priors_and_half_the_floor() -> None:
    assert usual_of(*[(1, 0)] * 300).chance(1) == pytest.approx((0.85 + 0.05) / 2)


def test_a_stream_starts_from_what_is_usual() -> None:
    usual = usual_of(*[(4, 0)] * 20)
    stream = Acceptance(usual)
    assert chances(stream) == chances(usual)
    assert stream.chance(1) < 0.65
    assert stream.chain(2) == pytest.approx((usual.chance(1), usual.chance(1) * usual.chance(2)))


def test_what_a_stream_saw_is_its_own_and_deeper_places_follow_the_usual() -> None:
    usual = Usual()
    first, second = Acceptance(usual), Acceptance(usual)
    first.observe(1, 1)
    own = first.chance(1)
    for _ in range(9):
        second.observe(3, 2)
    assert first.chance(1) == own
    assert chances(first)[1:] == chances(usual)[1:]
    assert usual.chance(3) < 0.70


def test_all_streams_teach_the_usual() -> None:
    usual = Usual()
    for drafted, accepted in ((3, 1), (2, 2), (1, 0)):
        Acceptance(usual).observe(drafted, accepted)
    assert chances(usual) == chances(usual_of((3, 1), (2, 2), (1, 0)))


def test_asking_what_is_likely_changes_nothing() -> None:
    usual = Usual()
    stream = Acceptance(usual)
    stream.chain(8)
    stream.expected(8)
    usual.observe(2, 0)
    assert chances(stream) == chances(usual)


def test_the_first_windows_are_averaged_with_the_start_as_two_of_them() -> None:
    """Were it one, it would be swept away; were it many, learning that nothing lands would take long."""
    stream = Acceptance(Usual())
    found = []
    for landed in (0, 1, 0, 0):
        stream.observe(1, landed)
        found.append(stream.chance(1))
    assert found == pytest.approx([(2 * 0.85 + hits) / (3 + n) for n, hits in enumerate((0, 1, 1, 1))])


def test_every_place_counts_its_own_windows() -> None:
    stream = Acceptance(Usual())
    for _ in range(5):
        stream.observe(1, 1)
    before = stream.chance(2)
    stream.observe(2, 1)
    assert stream.chance(2) == pytest.approx(before * 2 / 3)


def test_after_the_first_windows_it_moves_by_5_percent() -> None:
    stream = Acceptance(Usual())
    for _ in range(17):
        stream.observe(1, 1)
    for landed in (0, 0, 1):
        before = stream.chance(1)
        stream.observe(1, landed)
        assert stream.chance(1) == pytest.approx(before + 0.05 * (landed - before))


def test_a_steady_chance_stays_above_the_floor() -> None:
    stream = Acceptance(Usual())
    for _ in range(300):
        stream.observe(1, 0)
    assert stream.chance(1) == 0.05


def test_restoring_lifts_to_the_priors_whatever_is_usual() -> None:
    usual = usual_of(*[(3, 0)] * 40)
    stream = Acceptance(usual)
    stream.observe(1, 0)
    stream.restore(2)
    assert chances(stream) == [0.85, 0.75, *chances(usual)[2:]]


def test_a_stream_of_its_own_knows_nothing_usual() -> None:
    assert chances(Drafting(4).acceptance) == chances(Acceptance())
    usual = usual_of((4, 0))
    assert chances(Drafting(4, usual).acceptance) == chances(usual)


def test_without_drafts_a_stream_comes_closer_to_what_others_see() -> None:
    usual = Usual()
    unlucky, lucky = Acceptance(usual), Acceptance(usual)
    for _ in range(8):
        unlucky.observe(1, 0)
    for _ in range(60):
        lucky.observe(1, 1)
    low, seen = unlucky.chance(1), usual.seen(1)
    assert low < 0.3 < 0.9 < seen
    unlucky.relax(0.05)
    assert unlucky.chance(1) == pytest.approx(low + 0.05 * (seen - low))
    for _ in range(100):
        unlucky.relax(0.05)
    assert unlucky.chance(1) == pytest.approx(seen, abs=0.01)
    assert unlucky.chance(2) == usual.chance(2), "of deeper ones it saw nothing"


def test_one_that_learns_for_itself_stays_where_it_is() -> None:
    stream = Acceptance()
    stream.observe(2, 0)
    before = chances(stream)
    stream.relax(0.5)
    assert chances(stream) == before
