from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tfjax.lanes.copy_drafts import CopyDrafts
from tfjax.lanes.proposer import NOTHING, Proposal
from tfjax.train.replaying import replay
from tfjax.train.shards import WrittenReply


class Fixed:
    """Offers what it is told for each place of the text, and writes down what it hears."""

    def __init__(self, offers: dict[int, tuple[int, ...]]) -> None:
        self.offers = offers
        self.heard: list[int] = []
        self.asked: list[tuple[int, int]] = []
        self.drafted: list[int] = []

    def extend(self, tokens: Sequence[int]) -> None:
        self.heard += tokens

    def propose(self, most: int) -> Proposal:
        self.asked.append((len(self.heard), most))
        tokens = self.offers.get(len(self.heard), ())[: max(0, most)]
        return Proposal(tokens, tuple(0.5**depth for depth in range(1, len(tokens) + 1))) if tokens else NOTHING

    def pass_unread(self) -> bool:
        return False

    def observe(self, tokens: Sequence[int], drafted: int, alone: bool) -> None:
        self.heard += tokens
        self.drafted.append(drafted)


def always(proposer: Fixed) -> Callable[[], Fixed]:
    return lambda: proposer


REPLY = WrittenReply(0, "chat", 0.0, (1, 2, 3), (10, 11, 12, 13, 14, 15, 16))


def test_a_round_emits_the_drafts_that_land_and_one_more() -> None:
    proposer = Fixed({4: (11, 12, 99, 14), 7: (99,), 8: (15,)})
    found = replay([REPLY], always(proposer))
    assert proposer.heard == [*REPLY.prompt, *REPLY.reply]
    assert proposer.asked == [(4, 5), (7, 2), (8, 1)]
    assert proposer.drafted == [4, 1, 1]
    assert (found.tokens, found.rounds) == (6, 3)
    assert found.offered[:4] == [3, 1, 1, 1]
    assert found.landed[:4] == [2, 1, 0, 0]
    assert found.expected[:2] == pytest.approx([1.5, 0.25])


def test_a_draft_after_a_wrong_one_has_not_landed() -> None:
    assert replay([REPLY], always(Fixed({4: (99, 12)}))).landed[:2] == [0, 0]


def test_the_last_token_is_no_draft() -> None:
    """It ends the reply, so the loop draws it itself."""
    found = replay([REPLY], always(Fixed({4: (11, 12, 13, 14, 15, 16)})))
    assert (found.rounds, found.offered[:6]) == (1, [1, 1, 1, 1, 1, 0])


def test_no_more_drafts_than_allowed() -> None:
    assert replay([REPLY], always(Fixed({4: (11, 12, 13)})), most=2).offered[:3] == [1, 1, 0]


def test_replies_of_one_token_have_no_rounds() -> None:
    assert (
        replay([WrittenReply(0, "chat", 0.0, (1,), (2,)), WrittenReply(1, "chat", 0.0, (1,), ())], CopyDrafts).rounds
        == 0
    )


def test_each_reply_has_its_own_drafter() -> None:
    repeated = WrittenReply(0, "chat", 0.0, (1, 2, 3, 4, 5, 6), (7, 8, 9) * 9)
    one = replay([repeated], CopyDrafts)
    three = replay([repeated] * 3, CopyDrafts)
    assert three.rounds == 3 * one.rounds
    assert one.landed[0] > 0


def test_shares_are_of_rounds_and_of_offers() -> None:
    told = replay([REPLY], always(Fixed({4: (11, 12, 99, 14), 7: (99,), 8: (15,)}))).as_dict()
    assert told["tokens_per_round"] == 2.0
    assert told["landed_per_round"] == [0.6667, 0.3333, 0.0, 0.0]
    assert told["offered_per_round"] == [1.0, 0.3333, 0.3333, 0.3333]
    assert told["landed_per_offer"] == [0.6667, 1.0, 0.0, 0.0]
    assert told["expected_per_offer"] == [0.5, 0.25, 0.125, 0.0625]
