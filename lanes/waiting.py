"""Whether a round waits for the text that the one in flight yields, because the host may have drafts after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfjax.lanes.holds import pays
from tfjax.lanes.prices import Prices
from tfjax.lanes.proposer import NOTHING, Proposal, agreeing
from tfjax.lanes.stream import Stream

FIRST_TOKENS = 4.0
FADE = 0.95
FIRST_KEPT = 3.0
KEPT_RATE = 0.1
RETURN_RATE = 0.02
LANDS = 0.5
LOOK_EVERY = 8


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
            self._promised = FADE * self._promised + promised
            self._landed = FADE * self._landed + agreeing(offer.tokens, tokens)
            if self._usual is not None:
                self._usual.observe(offer, tokens)


@dataclass(slots=True)
class Hope:
    """Of one stream: what the host offered after its known text last, and how that goes.

    Attributes:
        luck: how offers land.
        offer: the last one.
        kept: tokens of a round that was waited for while the stream was alone; at first some are taken for granted.
        waits: whether the round after the one in flight waits for its text.
        waited: whether the one in flight did.
    """

    luck: Luck
    offer: Proposal = NOTHING
    kept: float = FIRST_KEPT
    waits: bool = False
    waited: bool = False

    def settle(self, tokens: Sequence[int], *, alone: bool) -> None:
        """These came after the known text."""
        self.luck.observe(self.offer, tokens)
        if self.waited and alone:
            self.kept += KEPT_RATE * (len(tokens) - self.kept)
        self.offer, self.waited, self.waits = NOTHING, self.waits, False

    def note(self, waits: bool) -> None:
        """Whether the next round waits for such an offer; if not, one will after some times, to see how it goes."""
        self.waits = waits
        if not waits:
            self.kept += RETURN_RATE * (FIRST_KEPT - self.kept)


class Waiting:
    """Decides for rounds that could be queued ahead.

    Asking what the host offers takes time for each stream. A company for which waiting would not pay even if every
    other of its streams were offered a token more asks every eighth round only.
    """

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._rests = 0

    def looks(self, streams: int) -> bool:
        """Whether this round of so many streams asks what the host offers; if not, it was asked lately."""
        if streams == 1 or not self._rests:
            return True
        self._rests -= 1
        return False

    def worth(self, offers: Mapping[Stream, Proposal], chains: Mapping[Stream, Sequence[float]]) -> bool:
        """Whether what the host offers, where it is more than the drafter's drafts, makes up for a round that waits.

        An offer is for the text known so far; a stream that has one now is taken to have as good a one after the next.
        A lone stream's copies get wider each time that one lands, so there it counts as well what such rounds yielded
        so far, and sure copies are waited for as long as they land.

        Args:
            offers: of every stream of the round.
            chains: the chances of the drafts that the drafter would make for some of them.
        """
        if len(offers) == 1 and any(offer.goes_first and _share(stream) >= LANDS for stream, offer in offers.items()):
            return True
        better = {
            stream: tokens
            for stream, offer in offers.items()
            if offer.tokens and (tokens := _tokens(stream, offer, len(offers))) > sum(chains.get(stream, ()))
        }
        price_ms, streams = self._prices.of_round(len(offers)), len(offers)
        others = {stream: chain for stream, chain in chains.items() if stream not in better}
        tokens = streams + sum(map(sum, others.values())) + sum(better.values())
        waiting_ms = price_ms(*_shape(streams + sum(len(offers[stream].tokens) for stream in better), others))
        waiting_ms += self._prices.wait_ms(streams)
        ahead = streams + sum(map(sum, chains.values())), price_ms(*_shape(streams, chains))
        self._rests = 0 if pays(tokens + streams / 2, waiting_ms, *ahead) else LOOK_EVERY - 1
        return bool(better) and pays(tokens, waiting_ms, *ahead)


def _tokens(stream: Stream, offer: Proposal, streams: int) -> float:
    """What the offer is expected to yield beside the token that there is anyway."""
    tokens = _share(stream) * sum(offer.chances)
    if streams == 1 and stream.drafting is not None:
        return max(tokens, stream.drafting.hope.kept - 1)
    return tokens


def _share(stream: Stream) -> float:
    return stream.drafting.hope.luck.share if stream.drafting is not None else 1.0


def _shape(rows: int, chains: Mapping[Stream, Sequence[float]]) -> tuple[int, int, int]:
    """Rows of all, streams that draft, and the most drafts of one."""
    depths = [len(chain) for chain in chains.values() if chain]
    return rows + sum(depths), len(depths), max(depths, default=0)
