from __future__ import annotations

import pytest

from benchmarks.exact_report import ArmReport, Budget, first_difference
from tests.benchmarks.scripted_exact import made
from tests.stubs import FakeClock


def test_equal_replies_have_no_difference() -> None:
    assert first_difference(made((1, 2, 3, 4)), made((1, 2, 3, 4), drafted=False)) is None


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (made((1, 2, 9, 4)), "from token 2 of 4, reference 4"),
        (made((1, 2, 3)), "from token 3 of 3, reference 4"),
        (made((1, 2, 3, 4, 5)), "from token 4 of 5, reference 4"),
        (made((1, 2, 3, 4), token_sha256="other"), "equal tokens, another hash"),
        (made((1, 2, 3, 4), reason="stop"), "ended by stop, reference by length"),
    ],
)
def test_a_difference_is_told(own: object, told: str) -> None:
    assert first_difference(own, made((1, 2, 3, 4))) == told  # type: ignore[arg-type]


def test_tokens_of_rounds_with_drafts_count() -> None:
    report = ArmReport("one start", "alone", 1)
    report.add("a", made(tuple(range(8))), made(tuple(range(8)), drafted=False))
    report.add("b", made(tuple(range(6)), drafted=False), made(tuple(range(6)), drafted=False))
    # Four rounds of two tokens each, of the first reply only; two drafts a round, of which the first is kept.
    assert (report.replies, report.tokens, report.counted, report.different) == (2, 14, 8, [])
    found = report.as_dict()
    assert (found["kept_per_depth"], found["rejected_per_depth"]) == ([4, 0], [0, 4])


def test_first_tokens_that_no_round_verified_do_not_count() -> None:
    report = ArmReport("one start", "alone", 1)
    report.add("a", made(tuple(range(20)), drafted_rounds=3, accepted=4), made(tuple(range(20))))
    assert report.counted == 7


def test_nothing_counts_where_nothing_was_rejected() -> None:
    report = ArmReport("one start", "alone", 1)
    report.add("a", made((1, 2), accepted_per_position=(1, 1)), made((1, 2)))
    assert (report.counting, report.counted) == (2, 0)


def test_a_planted_difference_is_reported_by_name() -> None:
    report = ArmReport("one start", "alone", 1)
    report.add("the third", made((1, 7)), made((1, 2)))
    assert report.different == ["the third: from token 1 of 2, reference 2"]
    assert report.as_dict()["different"] == report.different


def test_time_is_shared_by_what_steps_are_expected_to_take() -> None:
    clock = FakeClock()
    budget = Budget(100.0, [1.0, 3.0], clock)
    budget.begin()
    assert budget.fitting(4, 10, 99) == 1  # nothing was timed yet
    budget.observe(4, tokens=100, seconds=10.0)
    assert budget.fitting(4, 10, 99) == 25
    assert budget.fitting(4, 10, 7) == 7
    clock.advance_ms(5000.0)
    assert budget.fitting(4, 10, 99) == 20
    budget.begin()
    assert (budget.left_s, budget.fitting(4, 10, 999)) == (95.0, 95)
    clock.advance_ms(96_000.0)
    assert budget.fitting(4, 10, 99) == 0


def test_more_streams_are_taken_to_be_as_fast_as_fewer_until_timed() -> None:
    budget = Budget(10.0, [1.0], FakeClock())
    budget.begin()
    budget.observe(1, tokens=10, seconds=1.0)
    assert budget.fitting(16, 10, 99) == 10
    budget.observe(16, tokens=80, seconds=1.0)
    assert (budget.fitting(16, 10, 99), budget.fitting(8, 10, 99)) == (80, 10)


def test_left_out_steps_leave_their_time_to_the_others() -> None:
    budget = Budget(100.0, [1.0, 3.0, 1.0], FakeClock())
    budget.observe(1, tokens=1, seconds=1.0)
    budget.skip_to(1)
    assert budget.steps == 1
    budget.begin()
    assert budget.fitting(1, 1, 999) == 100
