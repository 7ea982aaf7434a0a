"""Whether a round waits for the text that the one in flight yields, because the host may have drafts after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfjax.lanes.holds import pays
from tfjax.lanes.prices import Prices
from tfjax.lanes.proposer import NOTHING, Proposal, agreeing
from tfjax.lanes.stream import Stream

FIRST_TOKENS = 4.0
KEPT = 0.95
LANDS = 0.5


class Luck:
    """What share of the tokens that the host's offers promise lands.

    Every offer counts whose text came, verified or not: as many of its tokens as came. With a `usual`, that of all
    streams, it starts from there, and others learn of it.
    """

    def __init__(self, usual: Luck | None = None) -> None:
        self._usual = usual
        self._promised = FIRST_TOKENS
        self._landed = FIRST_TOKENS * (usual.share if usual else 1.0)

    @property
    def share(self) -> float:
        return self._landed / self._promised

    def observe(self, offer: Proposal, tokens: Sequence[int]) -> None:
        """`tokens` came where the offer was."""
        promised = sum(offer.chances[: len(tokens)])
        if promised:
            self._promised = KEPT * self._promised + promised
            self._landed = KEPT * self._landed + agreeing(offer.tokens, tokens)
            if self._usual is not None:
                self._usual.observe(offer, tokens)


@dataclass(slots=True)
class Hope:
    """Of one stream: what the host offered after its known text last, and how that goes."""

    luck: Luck
    offer: Proposal = NOTHING

    def settle(self, tokens: Sequence[int]) -> None:
        """These came after the known text."""
        self.luck.observe(self.offer, tokens)
        self.offer = NOTHING


def worth_waiting(prices: Prices, offers: Mapping[Stream, Proposal], chains: Mapping[Stream, Sequence[float]]) -> bool:
    """Whether what the host has to offer, where it is more than the drafter's drafts, makes up for a round that waits.

    An offer is for the text known so far; a stream that has one now is taken to have as good a one after the next. A
    lone stream's sure copy is waited for as long as such land, since each that does makes the next one wider.

    Args:
        prices: of rounds.
        offers: of every stream of the round.
        chains: the chances of the drafts that the drafter would make for some of them.
    """
    if len(offers) == 1 and any(offer.goes_first and _share(stream) >= LANDS for stream, offer in offers.items()):
        return True
    better = {
        stream: tokens
        for stream, offer in offers.items()
        if offer.tokens and (tokens := _share(stream) * sum(offer.chances)) > sum(chains.get(stream, ()))
    }
    if not better:
        return False
    price_ms, streams = prices.of_round(len(offers)), len(offers)
    others = {stream: chain for stream, chain in chains.items() if stream not in better}
    copied = sum(len(offers[stream].tokens) for stream in better)
    return pays(
        streams + _tokens(others) + sum(better.values()),
        price_ms(*_shape(streams + copied, others)) + prices.wait_ms(streams),
        streams + _tokens(chains),
        price_ms(*_shape(streams, chains)),
    )


def _share(stream: Stream) -> float:
    return stream.drafting.hope.luck.share if stream.drafting is not None else 1.0


def _tokens(chains: Mapping[Stream, Sequence[float]]) -> float:
    return sum(map(sum, chains.values()))


def _shape(rows: int, chains: Mapping[Stream, Sequence[float]]) -> tuple[int, int, int]:
    """Rows of all, streams that draft, and the most drafts of one."""
    depths = [len(chain) for chain in chains.values() if chain]
    return rows + sum(depths), len(depths), max(depths, default=0)
