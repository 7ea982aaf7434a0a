"""How deep the drafter drafts where its holds have no measured price: each stream by its own rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfjax.lanes.acceptance import Acceptance
from tfjax.lanes.drafter import Drafter
from tfjax.lanes.joint_depths import Chain, drafter_room
from tfjax.lanes.prices import Prices
from tfjax.lanes.room import Room
from tfjax.lanes.stream import Stream


class OwnDepths:
    """Follows the depth rule of every stream, whatever the others do."""

    def __init__(self, prices: Prices, room: Room, drafter: Drafter) -> None:
        self._prices = prices
        self._room = room
        self._drafter = drafter

    def choose(self, fresh: Sequence[Stream]) -> dict[Stream, Chain]:
        """What to ask for each stream, as the chances of its drafts."""
        forward_ms, known = self._forward_ms(), self._prices.known
        chosen = {stream: self._chain(stream, forward_ms, known) for stream in fresh}
        return {stream: chain for stream, chain in chosen.items() if chain}

    def _chain(self, stream: Stream, forward_ms: Callable[[int], float], known: bool) -> Chain:
        drafting = stream.drafting
        if drafting is None:
            return ()
        room = 0 if stream.forced else drafter_room(stream, self._room, self._drafter)
        rule, step_ms = drafting.rule, self._drafter.step_ms
        answer = drafting.stand.ask() if room else "free"
        drafting.asked = answer == "probe"
        if answer == "silent":
            return ()
        if answer == "probe":
            return Acceptance().chain(rule.under_priors(room, forward_ms, step_ms))
        copy_ahead = stream.offer is not None and stream.offer.goes_first
        depth = rule.choose(room, forward_ms, step_ms, copy_ahead)
        if room and not depth and self._drafter.stands_aside and known:
            drafting.stand.stand()
        return drafting.acceptance.chain(depth)

    def _forward_ms(self) -> Callable[[int], float]:
        """Time of a forward by its rows, looked up once for all streams.

        Before forwards are timed every width counts the same.
        """
        rows = range(self._drafter.depth + 2)
        return [self._prices.forward_ms(count) if self._prices.known else 1.0 for count in rows].__getitem__
