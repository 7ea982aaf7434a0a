"""How deep the drafter drafts for each stream, decided for all streams of a round together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tfjax.lanes.acceptance import Acceptance
from tfjax.lanes.allocation import share_rows
from tfjax.lanes.drafter import Drafter
from tfjax.lanes.holds import pays
from tfjax.lanes.prices import Prices
from tfjax.lanes.room import Room
from tfjax.lanes.stream import Stream

Chain = Sequence[float]
"""For each draft of a stream, the chance that it and all before it land."""

Price = Callable[[int, int, int], float]


@dataclass(frozen=True, slots=True)
class Share:
    """Drafts by stream, and the tokens and milliseconds expected of a round with them."""

    granted: Mapping[Stream, int]
    tokens: float
    ms: float


class JointDepths:
    """Lets the drafter work only where that pays: its time and the rows of its drafts against what they land."""

    def __init__(self, prices: Prices, room: Room, drafter: Drafter, most_rows: int) -> None:
        self._prices = prices
        self._room = room
        self._drafter = drafter
        self._most_rows = most_rows

    def choose(self, fresh: Sequence[Stream], live: Sequence[Stream]) -> dict[Stream, Chain]:
        """What to ask for each of `fresh`, as the chances of its drafts.

        `live` are all streams of the coming rounds, those among them that have their drafts already included.
        """
        wanted = {stream: chain for stream in fresh if (chain := self._wanted(stream))}
        if not wanted:
            return {}
        price_ms = self._prices.of_round(len(live))
        plain = self._share(live, {}, price_ms)
        better = {
            stream: chain for stream, chain in wanted.items() if not (own := waiting(stream)) or sum(chain) > sum(own)
        }
        mixed = self._share(live, better, price_ms)
        paying = pays(mixed.tokens, mixed.ms, plain.tokens, plain.ms)
        chosen = {
            stream: self._settled(stream, chain, mixed.granted.get(stream, 0) if paying else 0, live)
            for stream, chain in wanted.items()
        }
        if not pays(mixed.tokens, mixed.ms, len(live), price_ms(fixed_rows(live), 0, 0)):
            self._stand_aside(wanted)
        return {stream: chain for stream, chain in chosen.items() if chain}

    def _wanted(self, stream: Stream) -> Chain:
        """The drafts that the drafter could make for the stream; none where it stands aside or a copy goes first."""
        drafting = stream.drafting
        most = drafter_room(stream, self._room, self._drafter)
        if drafting is None or stream.forced or most < 1:
            return ()
        answer = drafting.stand.ask()
        drafting.asked = answer == "probe"
        if answer == "silent" or (stream.offer is not None and stream.offer.goes_first):
            return ()
        return (Acceptance() if drafting.asked else drafting.acceptance).chain(most)

    def _share(self, live: Sequence[Stream], wanted: Mapping[Stream, Chain], price_ms: Price) -> Share:
        """The best allocation in which the drafter serves `wanted`; it counts drafts that lie with it already."""
        rows = fixed_rows(live)
        chains = [wanted.get(stream) or waiting(stream) for stream in live]
        if not any(chains):
            return Share({}, len(live), price_ms(rows, 0, 0))
        held = [stream in wanted or is_held(stream) for stream in live]
        granted = share_rows(chains, rows, self._most_rows, price_ms, held=held, steps=self._prices.steps)
        depths = [count for count, by_drafter in zip(granted, held, strict=True) if by_drafter and count]
        tokens = len(live) + sum(sum(chain[:count]) for chain, count in zip(chains, granted, strict=True))
        ms = price_ms(rows + sum(granted), len(depths), max(depths, default=0))
        return Share({stream: n for stream, n in zip(live, granted, strict=True) if stream in wanted}, tokens, ms)

    def _settled(self, stream: Stream, chain: Chain, depth: int, live: Sequence[Stream]) -> Chain:
        """The drafts to ask for, given how many of them pay.

        A probe goes ahead all the same, and now and then one draft more than pays is asked for, to learn how it lands:
        it counts as likely as the one before it.
        """
        drafting = stream.drafting
        if drafting is None:
            return ()
        if drafting.stand.probing:
            return chain[: depth or self._probe_depth(chain, live)]
        if not depth:
            return ()
        deeper = depth < len(chain) and drafting.probes_deeper and self._can_explore(depth + 1, live)
        return (*chain[:depth], chain[depth - 1]) if deeper else chain[:depth]

    @staticmethod
    def _stand_aside(streams: Iterable[Stream]) -> None:
        """Let streams stand aside in whose round no drafts pay.

        One that gets none in a round that pays only has the less likely ones, and may get some in the next.
        """
        for stream in streams:
            if stream.drafting is not None and not waiting(stream):
                stream.drafting.stand.stand()

    def _probe_depth(self, chain: Chain, live: Sequence[Stream]) -> int:
        """The best depth of a probe of one stream; 0 where even that costs too much to be tried."""
        rows, price_ms = fixed_rows(live), self._prices.of_round(len(live))
        rates = [sum(chain[:depth], 1.0) / price_ms(rows + depth, 1, depth) for depth in range(1, len(chain) + 1)]
        depth = 1 + max(range(len(rates)), key=rates.__getitem__)
        return next((d for d in (depth, 1) if self._can_explore(d, live)), 0)

    def _can_explore(self, depth: int, live: Sequence[Stream]) -> bool:
        rows, price_ms = fixed_rows(live), self._prices.of_round(len(live))
        fits = rows + depth <= self._most_rows
        return fits and self._prices.hold.can_explore(price_ms(rows + depth, 1, depth), price_ms(rows, 0, 0))


def is_held(stream: Stream) -> bool:
    """Whether the drafts that wait for the stream's next window lie with the drafter."""
    if stream.drafting is None or not stream.drafting.chances:
        return False
    return stream.offer is None or not stream.offer.goes_first


def waiting(stream: Stream) -> Chain:
    """The chances of the drafts that wait for the stream's next window."""
    if stream.drafting is not None and is_held(stream):
        return stream.drafting.chances
    return () if stream.offer is None else stream.offer.chances


def fixed_rows(live: Sequence[Stream]) -> int:
    """Rows that a round of these streams has anyway: of pending and forced tokens."""
    return sum(1 + len(stream.forced) for stream in live)


def drafter_room(stream: Stream, room: Room, drafter: Drafter) -> int:
    """Most drafts that the drafter can make for the stream's next window."""
    return max(0, min(room.drafts(stream), drafter.depth, drafter.context - len(stream.context)))
