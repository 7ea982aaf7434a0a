"""Which order is ahead, by replies whose drafts are counted by hand."""

from __future__ import annotations

import math

import pytest

from tfjax.research.order_kept import AFTER, BEFORE, Compared, Kept, Mean, compare, conclusion, table

NAN = math.nan


def compared(before: float, after: float, error: float, replies: int = 9) -> Compared:
    return Compared(Mean(before, 0.1), Mean(after, 0.1), Mean(before - after, error), replies, 100)


def test_replies_are_compared_with_themselves() -> None:
    before = [Kept(4, 8), Kept(10, 30), Kept(5, 20)]
    after = [Kept(4, 6), Kept(10, 25), Kept(5, 20)]
    found = compare(before, after)
    assert found.before.value == pytest.approx(3)
    assert found.before.error == pytest.approx(1 / math.sqrt(3))
    assert found.after.value == pytest.approx((1.5 + 2.5 + 4) / 3)
    assert found.difference.value == pytest.approx(1 / 3)
    assert found.difference.error == pytest.approx(math.sqrt(1 / 12 / 3))
    assert (found.replies, found.rounds) == (3, 38)


def test_replies_without_drafts_in_one_order_are_left_out() -> None:
    found = compare([Kept(0, 0), Kept(2, 2), Kept(2, 4)], [Kept(3, 3), Kept(0, 0), Kept(2, 4)])
    assert (found.replies, found.rounds, found.difference.value) == (1, 4, 0)
    assert math.isnan(found.difference.error)
    assert found.ahead is None
    assert math.isnan(compare([], []).before.value)


@pytest.mark.parametrize(
    ("before", "after", "error", "ahead"),
    [
        (1.5, 1.2, 0.1, BEFORE),
        (1.2, 1.5, 0.1, AFTER),
        (1.5, 1.2, 0.2, None),
        (1.5, 1.5, 0.0, None),
        (1.5, 1.2, NAN, None),
    ],
)
def test_ahead_is_beyond_two_errors(before: float, after: float, error: float, ahead: str | None) -> None:
    assert compared(before, after, error).ahead == ahead


def test_what_the_other_order_loses() -> None:
    assert compared(2, 1.5, 0.1).lost == 0.25
    assert compared(1.5, 2, 0.1).lost == 0.25
    assert compared(0, 0, 0.1).lost == 0


CLEAR, REVERSED, UNCLEAR = compared(2, 1, 0.1), compared(1, 2, 0.1), compared(1.0, 1.01, 0.1)


@pytest.mark.parametrize(
    ("greedy", "sampled", "stated", "said"),
    [
        (
            CLEAR,
            CLEAR,
            BEFORE,
            "before_rope keeps more drafts, which is what the config says; the other order loses 50",
        ),
        (CLEAR, UNCLEAR, AFTER, "serve with --drafter-qk-norm before_rope; the other order loses 50.0% greedy."),
        (UNCLEAR, REVERSED, BEFORE, "serve with --drafter-qk-norm after_rope; the other order loses 50.0% sampled."),
        (CLEAR, REVERSED, BEFORE, "Undecided: one order is ahead greedy, the other sampled; leave what the config say"),
        (UNCLEAR, UNCLEAR, AFTER, "neither order is ahead beyond its error; leave what the config says (after_rope)"),
        (CLEAR, compared(2, 1, 0.1, replies=1), BEFORE, "Too few replies"),
    ],
)
def test_the_conclusion(greedy: Compared, sampled: Compared, stated: str, said: str) -> None:
    line = conclusion({"greedy": greedy, "sampled": sampled}, stated)
    assert said in line
    assert "\n" not in line


def test_the_table_has_a_line_each() -> None:
    lines = table({"greedy": CLEAR, "sampled": REVERSED}).splitlines()
    assert [line.split()[0] for line in lines] == ["drafts", "greedy", "sampled"]
    assert "2.000 ± 0.100" in lines[1]
    assert "-1.000 ± 0.100" in lines[2]
    assert len(set(map(len, lines))) == 1
