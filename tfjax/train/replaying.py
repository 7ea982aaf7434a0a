"""Drafters measured on replies that exist: a round emits the drafts that agree with the reply and the token after."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tfjax.lanes.proposer import Proposer
from tfjax.train.shards import WrittenReply

DEEPEST = 8


@dataclass(slots=True)
class Landings:
    """What became of drafts.

    Attributes:
        tokens: emitted in rounds.
        rounds: asks.
        offered, landed: by depth, first draft first. A draft counts as landed when all before it did, too.
        expected: sums of the offered chances, by depth.
    """

    tokens: int = 0
    rounds: int = 0
    offered: list[int] = field(default_factory=lambda: [0] * DEEPEST)
    landed: list[int] = field(default_factory=lambda: [0] * DEEPEST)
    expected: list[float] = field(default_factory=lambda: [0.0] * DEEPEST)

    def as_dict(self) -> dict[str, object]:
        """Shares by depth: of rounds, and of the drafts offered at that depth."""
        deepest = sum(1 for offered in self.offered if offered)
        return {
            "tokens": self.tokens,
            "rounds": self.rounds,
            "tokens_per_round": round(self.tokens / max(1, self.rounds), 3),
            "landed_per_round": [round(landed / max(1, self.rounds), 4) for landed in self.landed[:deepest]],
            "offered_per_round": [round(offered / max(1, self.rounds), 4) for offered in self.offered[:deepest]],
            "landed_per_offer": [
                round(landed / offered, 4) for landed, offered in zip(self.landed, self.offered, strict=True) if offered
            ],
            "expected_per_offer": [
                round(chance / offered, 4)
                for chance, offered in zip(self.expected, self.offered, strict=True)
                if offered
            ],
        }


def replay(replies: Iterable[WrittenReply], proposer: Callable[[], Proposer], most: int = DEEPEST) -> Landings:
    """Let each reply's own proposer draft at most `most` tokens in every round."""
    total = Landings()
    for reply in replies:
        _replay_one(reply, proposer(), most, total)
    return total


def _replay_one(reply: WrittenReply, proposer: Proposer, most: int, total: Landings) -> None:
    proposer.extend(reply.prompt)
    proposer.extend(reply.reply[:1])
    place = 1
    while place < len(reply.reply):
        left = reply.reply[place:]
        proposal = proposer.propose(min(most, len(left) - 1))
        landed = 0
        for depth, (token, chance) in enumerate(zip(proposal.tokens, proposal.chances, strict=True)):
            total.offered[depth] += 1
            total.expected[depth] += chance
            if landed == depth and token == left[depth]:
                total.landed[depth] += 1
                landed += 1
        emitted = left[: landed + 1]
        proposer.observe(emitted, len(proposal.tokens), alone=True)
        total.rounds += 1
        total.tokens += len(emitted)
        place += len(emitted)
