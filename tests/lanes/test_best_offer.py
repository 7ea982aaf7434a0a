from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfjax.lanes.best_offer import BestOffer
from tfjax.lanes.copy_drafts import CopyDrafts
from tfjax.lanes.proposer import NOTHING, Proposal


class Scripted:
    """Proposes the same each time, and writes down what it is told."""

    def __init__(self, tokens: Sequence[int] = (), chances: Sequence[float] = (), passes: bool = False) -> None:
        self.proposal = Proposal(tuple(tokens), tuple(chances))
        self.passes = passes
        self.asks = 0
        self.passed = 0
        self.extended: list[int] = []
        self.observed: list[tuple[tuple[int, ...], int, bool]] = []

    def extend(self, tokens: Sequence[int]) -> None:
        self.extended += tokens

    def propose(self, most: int) -> Proposal:
        self.asks += 1
        return self.proposal

    def pass_unread(self) -> bool:
        self.passed += self.passes
        return self.passes

    def observe(self, tokens: Sequence[int], drafted: int, alone: bool) -> None:
        self.observed.append((tuple(tokens), drafted, alone))


SHORT = ((1,), (0.9,))
LONG = ((2, 3, 4), (0.45, 0.4, 0.3))


@pytest.mark.parametrize(("most", "offered"), [(9, (2, 3, 4)), (2, (1,)), (1, (1,))])
@pytest.mark.parametrize("turned", [False, True])
def test_the_most_expected_tokens_win(most: int, offered: tuple[int, ...], turned: bool) -> None:
    proposers = [Scripted(*SHORT), Scripted(*LONG)]
    assert BestOffer(proposers[::-1] if turned else proposers).propose(most).tokens == offered


def test_ties_go_to_the_first() -> None:
    assert BestOffer([Scripted((1,), (0.5,)), Scripted((2,), (0.5,))]).propose(4).tokens == (1,)


def test_nothing_from_nobody() -> None:
    assert BestOffer([Scripted(), Scripted()]).propose(4) == NOTHING
    assert BestOffer([]).propose(4) == NOTHING


def test_each_is_asked_once_and_hears_everything() -> None:
    proposers = [Scripted(*SHORT), Scripted(*LONG), Scripted()]
    offer = BestOffer(proposers)
    offer.extend([7, 8])
    offer.propose(9)
    offer.observe([2, 3, 9], 3, alone=False)
    for proposer in proposers:
        assert (proposer.asks, proposer.extended) == (1, [7, 8])
        assert [(tokens, alone) for tokens, _, alone in proposer.observed] == [((2, 3, 9), False)]


def test_only_what_was_verified_counts_as_drafted() -> None:
    proposers = [Scripted(*SHORT), Scripted(*LONG)]
    offer = BestOffer(proposers)
    for drafted in (3, 1, 0):
        offer.propose(9)
        offer.observe([5], drafted, alone=True)
    assert [drafted for _, drafted, _ in proposers[0].observed] == [0, 0, 0]
    assert [drafted for _, drafted, _ in proposers[1].observed] == [3, 1, 0]


def test_equal_tokens_were_verified_whoever_offered_them() -> None:
    """A copy of one token that agrees with the start of a longer offer was verified with it, and may widen."""
    one, other = Scripted((2, 3), (0.45, 0.4)), Scripted(*LONG)
    offer = BestOffer([one, other])
    offer.propose(9)
    offer.observe([2, 3, 4, 5], 3, alone=True)
    offer.propose(9)
    offer.observe([2], 1, alone=True)
    assert [drafted for _, drafted, _ in one.observed] == [2, 1]


def test_an_offer_is_judged_once() -> None:
    proposer = Scripted(*SHORT)
    offer = BestOffer([proposer])
    offer.propose(9)
    offer.observe([1], 1, alone=True)
    offer.observe([1], 1, alone=True)
    assert [drafted for _, drafted, _ in proposer.observed] == [1, 0]


def test_it_passes_when_all_pass() -> None:
    assert BestOffer([Scripted(passes=True), Scripted(passes=True)]).pass_unread()
    assert not BestOffer([Scripted(passes=True), Scripted(passes=False)]).pass_unread()
    assert not BestOffer([Scripted(passes=False), Scripted(passes=True)]).pass_unread()


def test_one_that_passed_while_others_did_not_is_not_asked_again() -> None:
    passing, other = Scripted(*LONG, passes=True), Scripted(*SHORT)
    offer = BestOffer([passing, other])
    assert not offer.pass_unread()
    assert not offer.pass_unread()
    assert passing.passed == 1
    offer.observe([1], 0, alone=True)
    assert offer.propose(9).tokens == (1,)
    assert (passing.asks, other.asks) == (0, 1)
    offer.propose(9)
    assert passing.asks == 1


def test_after_all_have_passed_all_are_asked_again() -> None:
    proposers = [Scripted(*SHORT, passes=True), Scripted(*LONG, passes=True)]
    offer = BestOffer(proposers)
    assert offer.pass_unread()
    assert offer.pass_unread()
    assert [proposer.passed for proposer in proposers] == [2, 2]
    offer.propose(9)
    assert [proposer.asks for proposer in proposers] == [1, 1]


class Never(Scripted):
    """Has nothing to say, and never passes."""


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=120), st.lists(st.tuples(st.integers(0, 2), st.booleans())))
def test_beside_a_drafter_with_nothing_to_say_copies_are_as_alone(
    text: list[int], rounds: list[tuple[int, bool]]
) -> None:
    """Silence included: it is counted once a round, whether the round ran ahead or not."""
    alone, beside = CopyDrafts(3), BestOffer([CopyDrafts(3), Never()])
    for drafts in (alone, beside):
        drafts.extend(text)
    for token, runs_ahead in rounds:
        if runs_ahead:
            beside.pass_unread()
        for drafts in (alone, beside):
            drafts.observe([token], 0, alone=True)
        expected = alone.propose(8)
        assert beside.propose(8) == expected
        for drafts in (alone, beside):
            drafts.observe([token], len(expected.tokens), alone=True)
