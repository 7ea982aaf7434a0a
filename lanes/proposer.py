"""Where drafts come from: the seam between the loop and whatever guesses the next tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import ge
from typing import Protocol

from tfjax.lanes.containment import Contained

SURE_MATCH = 8
SURE_TOKENS = 2


@dataclass(frozen=True, slots=True)
class Proposal:
    """Guessed next tokens of one stream.

    Attributes:
        tokens: the drafts, in order.
        chances: for each, the chance that it and all before it land.
        match: tokens of context that a copy repeats before its first draft; 0 for drafts of another kind.
    """

    tokens: tuple[int, ...] = ()
    chances: tuple[float, ...] = ()
    match: int = 0

    @property
    def goes_first(self) -> bool:
        """Whether it is a copy so sure that a drafter's own drafts give way to it."""
        return self.match >= SURE_MATCH and len(self.tokens) >= SURE_TOKENS


NOTHING = Proposal()


class Proposer(Protocol):
    """Guesses the next tokens of one stream. The loop asks once a round and then says what came of it."""

    def extend(self, tokens: Sequence[int]) -> None:
        """Take tokens that no round emitted: the prompt in pieces, and the first of the reply."""

    def propose(self, most: int) -> Proposal:
        """Guess at most `most` tokens after all that was taken (maybe fewer, maybe none)."""

    def pass_unread(self) -> bool:
        """Whether `propose` would guess nothing after one more token, whichever it is.

        True counts as having asked: the loop then makes that round without asking.
        """

    def observe(self, tokens: Sequence[int], drafted: int, alone: bool) -> None:
        """Take the tokens that a round emitted.

        The first `drafted` tokens of the last proposal were verified in it (0: the loop had no use for them). `alone`
        says that no other stream shared the round.
        """


class Silent:
    """Proposes nothing."""

    def extend(self, tokens: Sequence[int]) -> None:
        pass

    def propose(self, most: int) -> Proposal:
        return NOTHING

    def pass_unread(self) -> bool:
        return True

    def observe(self, tokens: Sequence[int], drafted: int, alone: bool) -> None:
        pass


class CheckedProposer:
    """A proposer that cannot do harm: impossible drafts are dropped, and one that raises is silenced."""

    def __init__(self, proposer: Proposer, vocab_size: int, stop_ids: frozenset[int]) -> None:
        self._proposer = proposer
        self._vocab_size = vocab_size
        self._stop_ids = stop_ids
        self._contained = Contained("a proposer", self._silence)

    def extend(self, tokens: Sequence[int]) -> None:
        with self._contained:
            self._proposer.extend(tokens)

    def propose(self, most: int) -> Proposal:
        with self._contained:
            proposal = self._proposer.propose(most)
            return self._possible(proposal, most) if proposal.tokens else NOTHING
        return NOTHING

    def pass_unread(self) -> bool:
        with self._contained:
            return self._proposer.pass_unread()
        return True

    def observe(self, tokens: Sequence[int], drafted: int, alone: bool) -> None:
        with self._contained:
            self._proposer.observe(tokens, drafted, alone)

    def _possible(self, proposal: Proposal, most: int) -> Proposal:
        """The drafts up to the first that is no token, ending with the first that would end the reply."""
        if len(proposal.tokens) <= most and self._is_plain(proposal):
            return proposal
        usable = self._usable(proposal.tokens[: max(0, most)])
        chances = accumulate(map(float, proposal.chances[:usable]), min)
        return Proposal(tuple(proposal.tokens[:usable]), tuple(chances), proposal.match)

    def _is_plain(self, proposal: Proposal) -> bool:
        """Whether there is nothing to drop: tokens of the vocabulary, none of which ends the reply. Found fast."""
        tokens, chances = proposal.tokens, proposal.chances
        if type(tokens) is not tuple or type(chances) is not tuple or set(map(type, tokens)) != {int}:
            return False
        possible = min(tokens) >= 0 and max(tokens) < self._vocab_size and self._stop_ids.isdisjoint(tokens)
        falling = (
            len(chances) == len(tokens) and set(map(type, chances)) == {float} and all(map(ge, chances, chances[1:]))
        )
        return possible and falling

    def _usable(self, tokens: Sequence[int]) -> int:
        usable = 0
        for token in tokens:
            if not self._is_token(token):
                break
            usable += 1
            if token in self._stop_ids:
                break
        return usable

    def _is_token(self, token: object) -> bool:
        return isinstance(token, int) and 0 <= token < self._vocab_size

    def _silence(self, _: Exception) -> None:
        self._proposer = Silent()


def agreeing(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading elements are equal."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count
