from __future__ import annotations

from array import array
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjax.lanes.table_drafts import (
    FAILED_CHANCES_BEFORE_SILENCE,
    LEAST_CHANCE,
    MOST_CHANCE,
    SILENT_ASKS,
    Continuations,
    Table,
    TableDrafts,
    key_of,
)


def table(entries: Mapping[tuple[int, ...], tuple[int, float]], longest: int = 3) -> Table:
    """A table of context -> (token, chance)."""
    orders = []
    for length in range(1, longest + 1):
        rows = sorted((key_of(context), *guess) for context, guess in entries.items() if len(context) == length)
        orders.append(
            Continuations(
                array("Q", [row[0] for row in rows]),
                array("I", [row[1] for row in rows]),
                array("B", [round(255 * row[2]) for row in rows]),
            )
        )
    return Table(orders)


def drafts(entries: Mapping[tuple[int, ...], tuple[int, float]], *context: int, most_drafts: int = 8) -> TableDrafts:
    made = TableDrafts(table(entries), most_drafts)
    made.extend(context)
    return made


RING = {(token,): ((token + 1) % 10, 0.9) for token in range(10)}
"""Counts round and round."""


def test_the_longest_known_context_speaks() -> None:
    entries = {(3,): (10, 1.0), (2, 3): (20, 1.0), (1, 2, 3): (30, 1.0)}
    for context, token in [((1, 2, 3), 30), ((9, 2, 3), 20), ((9, 9, 3), 10), ((2, 3), 20), ((3,), 10)]:
        assert drafts(entries, *context).propose(1).tokens == (token,)
    assert not drafts(entries, 1, 2).propose(1).tokens


def test_of_a_long_text_the_end_counts() -> None:
    assert drafts({(2, 3, 4): (5, 1.0)}, 9, 9, 9, 1, 2, 3, 4).propose(1).tokens == (5,)


def test_nothing_is_sure() -> None:
    assert drafts({(1,): (2, 1.0)}, 1).propose(1).chances == (MOST_CHANCE,)


def test_a_shorter_context_is_no_beginning_of_a_longer_one() -> None:
    """Before the first tokens there is nothing, also no token 0."""
    assert not drafts({(0, 3): (1, 1.0)}, 3).propose(1).tokens
    assert drafts({(0, 3): (1, 1.0)}, 0, 3).propose(1).tokens == (1,)


def test_no_two_contexts_share_a_key() -> None:
    largest = (1 << 21) - 2
    contexts = [(0, largest), (largest, 0), (1, 0), (0, 1), (largest, largest), (0, 0, 1), (1, 0, 0), (0, largest, 0)]
    for length in (2, 3):
        keys = [key_of(context) for context in contexts if len(context) == length]
        assert len(set(keys)) == len(keys)
        assert max(keys) < 1 << 64


@given(st.dictionaries(st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple), st.integers(0, 9)), st.data())
def test_lookup_is_that_of_a_dictionary(entries: dict[tuple[int, ...], int], data: st.DataObject) -> None:
    found = table({context: (token, 1.0) for context, token in entries.items()})
    context = data.draw(st.lists(st.integers(0, 9), min_size=3, max_size=3))
    expected = next((entries[end] for length in (3, 2, 1) if (end := tuple(context[-length:])) in entries), None)
    assert found.after(key_of(context)) == (None if expected is None else (expected, 1.0))


def test_a_chain_follows_its_own_drafts() -> None:
    proposal = drafts(RING, 7).propose(4)
    assert proposal.tokens == (8, 9, 0, 1)
    each = round(255 * 0.9) / 255
    assert proposal.chances == pytest.approx([each, each**2, each**3, each**4])


@pytest.mark.parametrize(("most", "most_drafts", "length"), [(3, 8, 3), (20, 5, 5), (0, 8, 0), (-1, 8, 0)])
def test_no_more_than_asked_for(most: int, most_drafts: int, length: int) -> None:
    assert len(drafts(RING, 1, most_drafts=most_drafts).propose(most).tokens) == length


def test_a_chain_ends_before_its_chance_is_too_small() -> None:
    entries = {(token,): (token + 1, 0.5) for token in range(9)}
    proposal = drafts(entries, 0).propose(8)
    assert len(proposal.tokens) == 4
    assert proposal.chances[-1] >= LEAST_CHANCE > proposal.chances[-1] / 2


def test_chances_are_scaled_by_what_landed() -> None:
    entries = {(token,): ((token + 1) % 10, 0.5) for token in range(10)}
    made = drafts(entries, 0)
    before = made.propose(1).chances[0]
    for _ in range(30):
        (token,) = made.propose(1).tokens
        made.observe([token], 1, alone=True)
    up = made.propose(1).chances[0]
    assert before < up <= 1.5 * before + 1e-9
    for number in range(60):
        (token,) = made.propose(1).tokens
        made.observe([token if number % 3 == 0 else (token + 5) % 10], 1, alone=True)
    assert made.propose(1).chances[0] < 0.9 * before


def test_a_guess_that_is_not_offered_is_judged_too() -> None:
    """Otherwise a stream whose chances have sunk could never come back."""
    made = drafts(dict.fromkeys([(token,) for token in range(10)], (7, 0.3)), 0)
    made._first.landed, made._first.expected = 1.0, 20.0
    for _ in range(200):
        offered = made.propose(1).tokens
        if offered:
            break
        made.observe([7], 0, alone=True)
    assert offered == (7,)


def test_only_guesses_whose_turn_came_are_judged() -> None:
    """After a wrong first draft nothing is known of the second."""
    one, two = drafts(RING, 0), drafts(RING, 0)
    one.propose(1)
    two.propose(5)
    one.observe([5], 1, alone=True)
    two.observe([5, 2], 1, alone=True)
    assert (one._first, one._later) == (two._first, two._later)


def test_guesses_on_guesses_are_judged_apart() -> None:
    """A chain's later drafts may fare worse than its first, which follows text that is real."""
    made = drafts(RING, 0)
    before = made.propose(2).chances
    for _ in range(40):
        first, second = made.propose(2).tokens
        made.observe([first, (second + 3) % 10], 2, alone=True)
    after = made.propose(2).chances
    assert after[0] >= before[0]
    assert after[1] / after[0] < 0.5 * before[1] / before[0]


def test_what_is_unverified_but_emitted_is_judged() -> None:
    landed, missed = drafts(RING, 0), drafts(RING, 0)
    for made, token in ((landed, 1), (missed, 5)):
        made.propose(1)
        made.observe([token], 0, alone=True)
    assert landed._first.landed > missed._first.landed


def failing(made: TableDrafts, asks: int, verified: bool = True) -> int:
    """Asks that were answered, of so many of which nothing lands."""
    answered = 0
    for _ in range(asks):
        proposal = made.propose(1)
        answered += bool(proposal.tokens)
        token = (proposal.tokens[0] + 3) % 10 if proposal.tokens else 5
        made.observe([token], len(proposal.tokens) if verified else 0, alone=True)
    return answered


def test_after_offers_worth_four_landings_without_any_it_is_silent() -> None:
    made = drafts(RING, 0)
    offers, worth = 0, 0.0
    while worth < FAILED_CHANCES_BEFORE_SILENCE:
        proposal = made.propose(1)
        worth += proposal.chances[0]
        offers += 1
        made.observe([(proposal.tokens[0] + 3) % 10], 1, alone=True)
    assert 4 < offers < 16
    assert failing(made, SILENT_ASKS) == 0
    again = failing(made, offers)
    assert again == offers, "it took fewer failures the second time"


def test_offers_that_were_not_verified_fail_too() -> None:
    assert failing(drafts(RING, 0), 30, verified=False) < 20


def test_a_landing_forgives_failures() -> None:
    made = drafts(RING, 0)
    for _ in range(6):
        assert failing(made, 2) == 2
        (token,) = made.propose(1).tokens
        made.observe([token], 1, alone=True)
        made._first.landed = made._first.expected  # the scale is another matter


def test_an_ask_without_an_answer_is_no_failure() -> None:
    made = drafts({(1,): (2, 0.9)}, 5)
    for _ in range(30):
        assert not made.propose(4).tokens
        made.observe([5], 0, alone=True)
    made.extend([1])
    assert made.propose(4).tokens == (2,)


def test_it_passes_unread_tokens_only_while_silent() -> None:
    made = drafts(RING, 0)
    assert not made.pass_unread()
    while not made._silent_asks:
        failing(made, 1)
    passed = [made.pass_unread() for _ in range(SILENT_ASKS + 1)]
    assert passed.count(False) == 1 + SILENT_ASKS - passed.count(True)
    assert passed[-1] is False
    assert made.propose(1).tokens


def test_passing_counts_as_an_ask() -> None:
    ahead, twin = drafts(RING, 0), drafts(RING, 0)
    for made in (ahead, twin):
        while not made._silent_asks:
            failing(made, 1)
    for _ in range(SILENT_ASKS + 3):
        passed = ahead.pass_unread()
        for made in (ahead, twin):
            made.observe([3], 0, alone=True)
        expected = twin.propose(2)
        assert (not expected.tokens) if passed else ahead.propose(2) == expected
