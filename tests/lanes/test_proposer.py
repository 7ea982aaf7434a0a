from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tfjax.lanes.proposer import NOTHING, CheckedProposer, Proposal


class Fixed:
    """Proposes the same thing each time, or raises in the named call."""

    def __init__(self, proposal: Proposal, raises: str = "") -> None:
        self.proposal = proposal
        self.raises = raises
        self.calls: list[str] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self.raises:
            raise RuntimeError(name)

    def extend(self, tokens: Sequence[int]) -> None:
        self._call("extend")

    def propose(self, most: int) -> Proposal:
        self._call("propose")
        return self.proposal

    def pass_unread(self) -> bool:
        self._call("pass_unread")
        return False

    def observe(self, tokens: Sequence[int], drafted: int, alone: bool) -> None:
        self._call("observe")


BAD: Any = [1.5, None, "1"]


@pytest.mark.parametrize(
    ("tokens", "most", "usable"),
    [
        ((1, 2, 3), 9, (1, 2, 3)),
        ((1, 2, 3), 2, (1, 2)),
        ((1, 2, 3), 0, ()),
        ((1, 2, 3), -5, ()),
        ((1, 10, 3), 9, (1,)),
        ((1, -1, 3), 9, (1,)),
        ((10,), 9, ()),
        ((1, 7, 3), 9, (1, 7)),
        *[((1, bad, 3), 9, (1,)) for bad in BAD],
        ([1, 2], 9, (1, 2)),
    ],
)
def test_only_possible_drafts_pass(tokens: Any, most: int, usable: tuple[int, ...]) -> None:
    checked = CheckedProposer(Fixed(Proposal(tokens, (0.5,) * len(tokens))), 10, frozenset({7}))
    proposal = checked.propose(most)
    assert proposal.tokens == usable
    assert len(proposal.chances) == len(usable)


def test_chances_never_rise() -> None:
    checked = CheckedProposer(Fixed(Proposal((1, 2, 3), (0.5, 0.9, 0.1))), 10, frozenset())
    assert checked.propose(9).chances == (0.5, 0.5, 0.1)


@pytest.mark.parametrize("raises", ["extend", "propose", "pass_unread", "observe"])
def test_a_proposer_that_raises_is_silenced_for_good(raises: str) -> None:
    inner = Fixed(Proposal((1,), (0.5,)), raises)
    checked = CheckedProposer(inner, 10, frozenset())

    def use() -> tuple[Proposal, bool]:
        checked.extend([1])
        proposal = checked.propose(9)
        checked.observe([1], 0, alone=True)
        return proposal, checked.pass_unread()

    use()
    made = len(inner.calls)
    assert use() == (NOTHING, True)
    assert len(inner.calls) == made


def test_chances_that_are_no_numbers_silence() -> None:
    bad: Any = ("x",)
    assert CheckedProposer(Fixed(Proposal((1,), bad)), 10, frozenset()).propose(9) == NOTHING
