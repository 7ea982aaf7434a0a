"""Gets the drafts of the next round: offers of the host, and what the drafter is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfjax.lanes.acceptance import Usual
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.drafter import Ask
from tfjax.lanes.drafting import Drafting
from tfjax.lanes.flight import Flight
from tfjax.lanes.joint_depths import JointDepths
from tfjax.lanes.outcome import Outcome
from tfjax.lanes.own_depths import OwnDepths
from tfjax.lanes.prices import Prices
from tfjax.lanes.proposer import NOTHING, Proposal
from tfjax.lanes.room import Room
from tfjax.lanes.stream import Stream
from tfjax.lanes.waiting import Hope, Luck, Waiting
from tfjax.lanes.weighing import Weighing


class Asking:
    """Asks every live stream's proposer once for each of its windows, and decides what the drafter drafts.

    With a measured hold grid ("priced") the depths of all streams are decided together, else each by its own rule.
    """

    def __init__(self, prices: Prices, room: Room, drafted: Drafted | None, most_rows: int) -> None:
        self._prices = prices
        self._room = room
        self._drafter = drafter = drafted.drafter if drafted else None
        self._jointly = False
        self._usual = Usual()
        self._luck = Luck()
        self._waiting = Waiting(prices)
        self._weighing = Weighing(drafted) if drafted else None
        if drafter is not None:
            self._joint = JointDepths(prices, room, drafter, most_rows)
            self._own = OwnDepths(prices, room, drafter)

    def open(self, stream: Stream) -> None:
        """Give a stream with drafts what is kept of its dealings with the drafter."""
        if self._drafter is not None and self._weighing is not None:
            usual = self._usual if self._prices.hold.priced else None
            most = min(self._drafter.depth, self._room.most_drafts)
            stream.drafting = Drafting(most, usual, self._weighing.open(), Hope(Luck(self._luck)))

    def prepare(self, live: Sequence[Stream]) -> list[Ask]:
        """Fill in `offer` of the streams that have none yet, and say what the drafter shall draft for them."""
        fresh = [stream for stream in live if stream.offer is None]
        for stream in fresh:
            stream.offer = self._offer(stream)
        self._jointly = self._prices.known and self._prices.hold.priced
        if self._drafter is None or self._prices.wants_plain(len(live)):
            return []
        if self._jointly:
            chains = self._joint.choose(fresh, live)
        else:
            chains = self._own.choose(fresh)
        self._expect(chains)
        return [Ask(stream, len(chain)) for stream, chain in chains.items()]

    def prepare_behind(self, streams: Sequence[Stream], able: Sequence[Stream], filling: int) -> list[Ask] | None:
        """What the drafter shall draft behind windows in flight; None where that has to wait until they are read.

        `streams` are all of that round, and it can draft for those that are `able`. Prompts of `filling` others are
        filled meanwhile.

        It has to where streams may have better drafts than the drafter's once their text is known, and enough of them
        to make up for the wait: then, and while depths are not decided together, every stream is asked anew in the next
        round.
        """
        if not (self._prices.known and self._prices.hold.priced):
            return None
        offers: dict[Stream, Proposal] = {}
        if not all(stream.unread for stream in streams) or self._waiting.looks(len(streams)):
            offers = {stream: self._offer(stream) for stream in streams}
        for stream in streams:
            stream.offer = NOTHING
            if stream.drafting is not None:
                stream.drafting.chances = ()
                stream.drafting.hope.offer = offers.get(stream, NOTHING)
        if self._prices.wants_plain(len(streams)):
            return []
        chains = self._joint.choose(able, streams, filling)
        if offers and self._waits(offers, chains):
            self._ask_again(streams)
            return None
        self._expect(chains)
        return [Ask(stream, len(chain), stream.unread) for stream, chain in chains.items()]

    def _waits(self, offers: Mapping[Stream, Proposal], chains: Mapping[Stream, Sequence[float]]) -> bool:
        """Whether the round waits for the text that these offers, or such as they, would follow."""
        waits = self._waiting.worth(offers, chains)
        for stream, offer in offers.items():
            if stream.drafting is not None and offer.tokens:
                stream.drafting.hope.note(waits)
        return waits

    def _offer(self, stream: Stream) -> Proposal:
        """What the stream's own text, as far as it is known, gives for the window after its pending token."""
        if stream.offer is not None:
            return stream.offer
        if stream.proposer is None or stream.forced:
            return NOTHING
        return stream.proposer.propose(self._room.drafts(stream))

    @staticmethod
    def _ask_again(streams: Sequence[Stream]) -> None:
        """Forget what streams without a window in flight were asked for. The others are asked anew once it is read."""
        for stream in streams:
            if not stream.unread:
                stream.offer = None
                if stream.drafting is not None:
                    stream.drafting.chances, stream.drafting.asked = (), False

    @staticmethod
    def _expect(chains: Mapping[Stream, Sequence[float]]) -> None:
        """Note the chances of drafts that are asked for."""
        for stream, chain in chains.items():
            if stream.drafting is not None:
                stream.drafting.chances = tuple(chain)

    def weigh(self, live: Sequence[Stream]) -> None:
        """Weigh drafts that wait by how sure the drafter is of each; without prices that would change nothing."""
        if self._weighing is not None and self._prices.known and self._prices.hold.priced:
            self._weighing.weigh(live)

    def may_pass(self, streams: Sequence[Stream]) -> bool:
        """Whether the next windows of all of these are sure to have no drafts, whatever their pending tokens are.

        True counts as having asked their proposers, and consumes no probe.
        """
        if any(map(self._may_be_drafted, streams)):
            return False
        if not self._waiting.looks(len(streams)):
            return True
        if not all(stream.proposer is None or stream.proposer.pass_unread() for stream in streams):
            return False
        if self._drafter is not None and self._prices.known and self._prices.hold.priced:
            self._waiting.worth(dict.fromkeys(streams, NOTHING), {})
        return True

    def _may_be_drafted(self, stream: Stream) -> bool:
        """Whether the drafter may be asked for the next window: not aside, and within its context."""
        if self._drafter is None or stream.drafting is None or len(stream.context) >= self._drafter.context:
            return False
        return not stream.drafting.stand.silent()

    def observe(
        self, outcome: Outcome, drafting: Drafting, flight: Flight, kept: Sequence[int], round_ms: float | None
    ) -> None:
        """Learn from one verified window of a round.

        Args:
            outcome: what became of the window.
            drafting: how its stream stands.
            flight: the round's forward.
            kept: rows that it kept of each window.
            round_ms: its time; None where that says nothing.
        """
        held = outcome.window.held
        drafting.observe(held, outcome.accepted, alone=len(kept) == 1)
        if not self._jointly:
            drafting.rule.observe(held, outcome.accepted, round_ms)
        drafting.hope.settle(outcome.tokens, alone=len(kept) == 1)
        if self._weighing is not None:
            self._weighing.learn(drafting, held, outcome.accepted)
        if not held:
            # Where only others' drafts got rows, its probe is still to come.
            drafting.stand.plain_round(drafting.asked and flight.is_plain)
        elif drafting.stand.probing and self._prices.known:
            self._settle_probe(drafting, outcome, flight, kept, round_ms)
        drafting.chances, drafting.asked = (), False
        counts = outcome.window.stream.counts
        counts.stood_aside_rounds, counts.probes = drafting.stand.total_aside_rounds, drafting.stand.probes

    def _settle_probe(
        self, drafting: Drafting, outcome: Outcome, flight: Flight, kept: Sequence[int], round_ms: float | None
    ) -> None:
        """In a shared round the other streams wait for the probe too, so it is the whole round that has to pay.

        Where its time says nothing it is taken to have been its price.
        """
        streams = len(kept)
        price_ms = self._prices.of_round(streams)
        if round_ms is None:
            round_ms = price_ms(flight.rows, flight.drafting, flight.held[1])
        if drafting.stand.drafted_round(sum(kept) / streams, round_ms, price_ms(streams, 0, 0)):
            drafting.acceptance.restore(outcome.accepted)
