"""How deep the drafter drafts for each stream, decided for all streams of a round together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tfjax.lanes.acceptance import Acceptance
from tfjax.lanes.drafter import Drafter
from tfjax.lanes.hold_value import Price, Share, certain, unweighed, weighed
from tfjax.lanes.holds import MARGIN, pays
from tfjax.lanes.prices import Prices
from tfjax.lanes.room import Room
from tfjax.lanes.stream import Stream
from tfjax.lanes.sureness import Node

Chain = Sequence[float]
"""For each draft of a stream, the chance that it and all before it land."""

LIKELY_MARGIN = 1.02
"""What it must gain to drop unlikely drafts. Then that is margin enough over plain rounds, too: what drafts are thought
to yield beyond what they do costs the hold, but no rows."""
DEEPER = 2
LOOK_EVERY = 8


class JointDepths:
    """Lets the drafter work only where that pays: its time and the rows of its drafts against what they land."""

    def __init__(self, prices: Prices, room: Room, drafter: Drafter, most_rows: int) -> None:
        self._prices = prices
        self._room = room
        self._drafter = drafter
        self._most_rows = most_rows
        self._filling = 0
        self._drops = False
        self._choices = 0

    def choose(self, fresh: Sequence[Stream], live: Sequence[Stream], filling: int = 0) -> dict[Stream, Chain]:
        """What to ask for each of `fresh`, as the chances of its drafts.

        `live` are all streams of the coming rounds, those among them that have their drafts already included. Prompts
        of `filling` streams are filled meanwhile: a longer round costs each of them as much as a stream without drafts.
        """
        self._filling = filling
        wanted = {stream: chain for stream in fresh if (chain := self._wanted(stream))}
        if not wanted:
            return {}
        price_ms = self._prices.of_round(len(live))
        plain = self._share(live, {}, price_ms)
        better = {
            stream: chain for stream, chain in wanted.items() if not (own := waiting(stream)) or sum(chain) > sum(own)
        }
        mixed, margin = self._mixed(live, better, price_ms, plain)
        paying = pays(mixed.tokens, mixed.ms, plain.tokens, plain.ms, margin)
        granted = dict(zip(live, mixed.granted, strict=False)) if paying else {}
        chosen = {
            stream: self._settled(stream, chain, granted.get(stream, 0) if stream in better else 0, live, paying)
            for stream, chain in wanted.items()
        }
        if not filling and not pays(mixed.tokens, mixed.ms, len(live), price_ms(fixed_rows(live), 0, 0), margin):
            self._stand_aside(wanted)
        return {stream: chain for stream, chain in chosen.items() if chain}

    def _mixed(
        self, live: Sequence[Stream], wanted: Mapping[Stream, Chain], price_ms: Price, plain: Share
    ) -> tuple[Share, float]:
        """The best round with the drafter, and how many times the tokens per millisecond of a plain one it must have.

        Where the drafter says how sure it is there are two ways to reckon. The one that promised more is followed for
        some rounds, then both are looked at, and so they are before drafts are given up.
        """
        if not any(stream.drafting and stream.drafting.confidence.sureness.known for stream in wanted):
            return self._share(live, wanted, price_ms), MARGIN
        follows = self._choices % LOOK_EVERY > 0
        self._choices += 1
        if follows:
            way, margin = (self._share_of_likely, LIKELY_MARGIN) if self._drops else (self._share, MARGIN)
            mixed = way(live, wanted, price_ms)
            if pays(mixed.tokens, mixed.ms, plain.tokens, plain.ms, margin):
                return mixed, margin
        every, likely = self._share(live, wanted, price_ms), self._share_of_likely(live, wanted, price_ms)
        self._drops = pays(likely.tokens, likely.ms, every.tokens, every.ms, LIKELY_MARGIN)
        return (likely, LIKELY_MARGIN) if self._drops else (every, MARGIN)

    def _share(self, live: Sequence[Stream], wanted: Mapping[Stream, Chain], price_ms: Price) -> Share:
        """The best allocation in which the drafter serves `wanted`; it counts drafts that lie with it already."""
        chains = [wanted.get(stream) or waiting(stream) for stream in live] + [()] * self._filling
        served = self._served(live, wanted)
        return unweighed(chains, served, fixed_rows(live), self._most_rows, price_ms, self._prices.steps)

    def _share_of_likely(self, live: Sequence[Stream], wanted: Mapping[Stream, Chain], price_ms: Price) -> Share:
        """The same where drafts that turn out unlikely are dropped before they cost rows."""
        nodes = [
            self._nodes(stream, wanted[stream]) if stream in wanted else certain(waiting(stream)) for stream in live
        ] + [()] * self._filling
        served = self._served(live, wanted)
        return weighed(nodes, served, fixed_rows(live), self._most_rows, price_ms, self._prices.steps)

    def _served(self, live: Sequence[Stream], wanted: Mapping[Stream, Chain]) -> list[bool]:
        """Whose drafts take time of the drafter; those that are filled have none."""
        return [stream in wanted or is_held(stream) for stream in live] + [False] * self._filling

    @staticmethod
    def _nodes(stream: Stream, chain: Chain) -> Sequence[Node]:
        """What is left of the stream's hold: at most `DEEPER` drafts more than it could use of the last one."""
        confidence = stream.drafting.confidence if stream.drafting else None
        if confidence is None or not confidence.sureness.known:
            return certain(chain)
        most = len(chain) if confidence.granted is None else min(len(chain), confidence.granted + DEEPER)
        return confidence.sureness.nodes(most)

    def _wanted(self, stream: Stream) -> Chain:
        """The drafts that the drafter could make for the stream; none where it stands aside or a copy goes first."""
        drafting = stream.drafting
        most = drafter_room(stream, self._room, self._drafter)
        if drafting is None or stream.forced or most < 1:
            return ()
        # What came of a probe is known once its window is read.
        answer = "silent" if drafting.stand.probing and stream.unread > 1 else drafting.stand.ask()
        drafting.asked = answer == "probe"
        if answer == "silent" or (stream.offer is not None and stream.offer.goes_first):
            return ()
        return (Acceptance() if drafting.asked else drafting.acceptance).chain(most)

    def _settled(self, stream: Stream, chain: Chain, depth: int, live: Sequence[Stream], paying: bool) -> Chain:
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
            returns = paying and drafting.confidence.sureness.known and drafting.confidence.pass_over()
            return chain[:1] if returns else ()
        deeper = depth < len(chain) and drafting.probes_deeper and self._can_explore(depth + 1, live)
        return (*chain[:depth], chain[depth - 1]) if deeper else chain[:depth]

    def _stand_aside(self, streams: Iterable[Stream]) -> None:
        """Let streams stand aside in whose round no drafts pay.

        One that gets none in a round that pays only has the less likely ones, and may get some in the next.
        """
        for stream in streams:
            if stream.drafting is not None and not waiting(stream) and not self._is_cut(stream):
                stream.drafting.stand.stand()

    def _is_cut(self, stream: Stream) -> bool:
        """Whether there may be more room for drafts than a window in flight leaves: no drafts then mean nothing."""
        if stream.drafting is None or stream.drafting.stand.aside or not stream.unread:
            return False
        return drafter_room(stream, self._room, self._drafter) < min(self._drafter.depth, self._room.most_drafts)

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
    return max(0, min(room.drafts(stream), drafter.depth, drafter.context - len(stream.context) - stream.unread))
