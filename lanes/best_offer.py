"""Several sources of drafts for one stream: each is asked once a round, and the best offer is made."""

from __future__ import annotations

from collections.abc import Sequence

from tfjax.lanes.proposer import NOTHING, Proposal, Proposer, agreeing


class BestOffer:
    """Offers the proposal with the largest sum of chances, that is, the most tokens expected; ties go to the first."""

    def __init__(self, proposers: Sequence[Proposer]) -> None:
        self._proposers = tuple(proposers)
        self._passed = [False] * len(self._proposers)
        self._proposals: list[Proposal] = [NOTHING] * len(self._proposers)
        self._offer = NOTHING

    def extend(self, tokens: Sequence[int]) -> None:
        for proposer in self._proposers:
            proposer.extend(tokens)

    def propose(self, most: int) -> Proposal:
        # One that passed while the token was unread has been asked already, and would guess nothing.
        self._proposals = [
            NOTHING if passed else proposer.propose(most)
            for proposer, passed in zip(self._proposers, self._passed, strict=True)
        ]
        self._passed = [False] * len(self._proposers)
        self._offer = max(self._proposals, key=lambda proposal: sum(proposal.chances[: max(0, most)]), default=NOTHING)
        return self._offer

    def pass_unread(self) -> bool:
        for place, proposer in enumerate(self._proposers):
            if not self._passed[place]:
                self._passed[place] = proposer.pass_unread()
            if not self._passed[place]:
                return False
        self._passed = [False] * len(self._proposers)
        return True

    def observe(self, tokens: Sequence[int], drafted: int, alone: bool) -> None:
        verified = self._offer.tokens[:drafted]
        for proposer, proposal in zip(self._proposers, self._proposals, strict=True):
            # Of a proposal that was not offered, what the offer has too was verified as well.
            proposer.observe(tokens, agreeing(proposal.tokens, verified), alone)
        self._proposals = [NOTHING] * len(self._proposers)
