"""A scripted drafter with a cache of its own, which checks how the loop deals with it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.stubs import EOS, VOCAB, BackendFailureError, ScriptedBackend, require
from tfjax.lanes.drafter import Ask, Guess
from tfjax.lanes.stream import Stream
from tfjax.lanes.window import Window

HoldTime = Callable[[int, int], float]
"""(streams, depth) -> milliseconds of one hold."""


@dataclass(frozen=True, slots=True)
class Made:
    """Drafts after a pending token that stands at a position."""

    position: int
    pending: int
    tokens: tuple[int, ...]

    def shown(self, count: int) -> tuple[int, ...]:
        """So many of them for the target: those up to the first impossible one, then fillers."""
        tokens = self.tokens[:count]
        usable = next((place for place, token in enumerate(tokens) if not 0 <= token < VOCAB), len(tokens))
        return (*tokens[:usable], *[self.pending] * (count - usable))


@dataclass(slots=True)
class DraftLane:
    """What the drafter knows of a stream: leading tokens of context in its cache, and drafts for windows not yet
    settled."""

    stream: Stream
    known: int = 0
    drafts: list[Made] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ticket:
    """A queued hold."""

    number: int
    guesses: tuple[Guess, ...]
    ready_s: float


class ScriptedDrafter:
    """Knows the target's script, keeps its own rows in the target's pages, and drafts in one of these manners.

    perfect: always right. wrong: never. mixed: right for the first `k` drafts. short: right, half as many as asked.
    empty: none. garbage: random ids. hostile: ids outside the vocabulary and EOS in the middle.
    by_place: right where `lands(stream, position)` says so.

    `sure(stream, position)` is how sure it is of a draft; without it, it does not say.

    Before each hold its rows must be the stream's context without the pending token; so a window that was not absorbed,
    or absorbed with another count than was kept, is seen at once.

    `hold_ms` is the grid that it tells, `takes_ms` the time that its holds really take on the target's queue.
    `fills(stream)` says when it cannot draft. `fail_at` is as for the backend; `failed_for` are the streams that a
    failing call was for, with the forwards that had been read by then.
    """

    MODES = ("perfect", "wrong", "mixed", "short", "empty", "garbage", "hostile")

    def __init__(
        self,
        target: ScriptedBackend,
        mode: str = "perfect",
        *,
        k: int = 2,
        depth: int = 8,
        context: int = 1 << 30,
        hold_ms: Mapping[int, Mapping[int, float]] | None = None,
        step_ms: float = 0.0,
        stands_aside: bool = True,
        takes_ms: HoldTime | None = None,
        lands: Callable[[Stream, int], bool] | None = None,
        sure: Callable[[Stream, int], float] | None = None,
        fills: Callable[[Stream], bool] | None = None,
        fail_at: Mapping[str, set[int]] | None = None,
    ) -> None:
        self.depth = depth
        self.context = context
        self.hold_ms: Mapping[int, Mapping[int, float]] = hold_ms or {}
        self.step_ms = step_ms
        self.stands_aside = stands_aside
        self.target = target
        self.mode = mode
        self.k = k
        self.takes_ms = takes_ms or (lambda streams, depth: step_ms * depth)
        self.lands = lands
        self.sure = sure
        self.fills = fills
        self.fail_at = fail_at or {}
        self.cells = [[-1] * target.page_rows for _ in target.cells]
        self.lanes: dict[int, DraftLane] = {}
        self.calls: Counter[str] = Counter()
        self.holds: list[list[tuple[str, int]]] = []
        self.opened: list[str] = []
        self.failed_for: list[tuple[Stream, int]] = []
        self._unread: set[int] = set()
        self._read_before = (-1, -1)
        self._random = random.Random(1)
        target.held_drafts = self.on_device

    # The protocol.

    def open(self, stream: Stream) -> None:
        self._call("open", stream)
        require(stream.request.drafts, "a stream without drafts was shown to the drafter")
        require(stream.lane not in self.lanes, "lane opened twice")
        self.opened.append(stream.request.id)
        self.lanes[stream.lane] = DraftLane(stream)

    def absorb_prompt(self, stream: Stream, start: int, stop: int) -> None:
        self._call("absorb_prompt", stream)
        lane = self._lane(stream)
        require(start == (lane.known or stream.reused) < stop <= len(stream.request.prompt), "prompt rows out of order")
        require(len(self.target.state_probe(stream)) == stop, "prompt rows that the target does not have")
        self._write(stream, lane.known, stream.request.prompt[lane.known : stop])
        lane.known = stop

    def can_draft(self, stream: Stream) -> bool:
        self._call("can_draft", stream)
        self._lane(stream)
        return self.fills is None or not self.fills(stream)

    def hold(self, asks: Sequence[Ask]) -> Ticket:
        self._call("hold", *[ask.stream for ask in asks])
        require(bool(asks), "a hold for nobody")
        require(len({ask.stream for ask in asks}) == len(asks), "a stream twice in one hold")
        for ask in asks:
            self._check_ask(ask)
        self.holds.append([(ask.stream.request.id, ask.depth) for ask in asks])
        drafts = tuple(self._drafts(ask) for ask in asks)
        for ask, tokens in zip(asks, drafts, strict=True):
            text = self._text(ask)
            self._lane(ask.stream).drafts.append(Made(len(text) - 1, text[-1], tokens))
        ready_s = self.target.queue_ms(self.takes_ms(len(asks), max(ask.depth for ask in asks)))
        guesses = tuple(Guess(tokens, self._confidences(ask, tokens)) for ask, tokens in zip(asks, drafts, strict=True))
        ticket = Ticket(len(self.holds), guesses, ready_s)
        self._unread.add(ticket.number)
        return ticket

    def _confidences(self, ask: Ask, tokens: Sequence[int]) -> tuple[float, ...]:
        first = len(ask.stream.context)
        return () if self.sure is None else tuple(self.sure(ask.stream, first + place) for place in range(len(tokens)))

    def read(self, tickets: Sequence[Ticket]) -> list[list[Guess]]:
        self._call("read")
        require(bool(tickets), "a read of nothing")
        now = self.target.calls["verify"], len(self.holds)
        require(self._read_before != now, "two reads for one forward")
        self._read_before = now
        for ticket in tickets:
            require(ticket.number in self._unread, "a ticket read twice")
            self._unread.remove(ticket.number)
        self.target.wait_until(max(ticket.ready_s for ticket in tickets))
        return [list(ticket.guesses) for ticket in tickets]

    def absorb(self, window: Window, kept: int) -> None:
        self._call("absorb", window.stream)
        stream, lane = window.stream, self._lane(window.stream)
        require(window.position == lane.known, "a window that does not follow what was absorbed")
        require(1 <= kept <= window.rows, "kept rows that the window does not have")
        pending = stream.context[window.position] if window.pending is None else window.pending
        made = lane.drafts.pop(0) if lane.drafts and lane.drafts[0].position == window.position else None
        rows = (pending, *(made.shown(window.held) if made and window.held else window.drafts))[:kept]
        require(
            rows == tuple(stream.context[lane.known : lane.known + kept]), "other rows were kept than the stream has"
        )
        self._write(stream, lane.known, rows)
        lane.known += kept

    def release(self, stream: Stream) -> None:
        self._call("release")
        require(stream.request.drafts, "a stream without drafts was shown to the drafter")
        if stream.lane in self.lanes and self.lanes[stream.lane].stream is stream:
            del self.lanes[stream.lane]

    # The device's side of held drafts.

    def on_device(self, window: Window) -> tuple[int, ...]:
        """What the target finds as the window's held drafts."""
        return self._lane(window.stream).drafts[-1].shown(window.held)

    # How it works.

    def _call(self, name: str, *streams: Stream) -> None:
        self.calls[name] += 1
        if self.calls[name] in self.fail_at.get(name, ()):
            self.failed_for += [(stream, self.target.calls["read"]) for stream in streams]
            self.target.failed = True
            raise BackendFailureError(f"drafter {name} call {self.calls[name]}")

    def _lane(self, stream: Stream) -> DraftLane:
        require(stream.lane in self.lanes, "the drafter's lane was not opened")
        require(self.lanes[stream.lane].stream is stream, "the drafter's lane is another stream's")
        return self.lanes[stream.lane]

    def _check_ask(self, ask: Ask) -> None:
        stream, lane, length = ask.stream, self._lane(ask.stream), len(ask.stream.context) + ask.unread
        require(1 <= ask.depth <= self.depth, "a depth that the drafter does not have")
        require(length + ask.depth <= self.context, "more positions than the drafter has")
        require(length + ask.depth <= len(stream.pages) * self.target.page_rows, "drafts without a page")
        require(ask.depth <= stream.room - ask.unread, "more drafts than the reply has room for")
        require(not stream.forced and not stream.paused and stream.reason is None, "drafts that nobody can use")
        require(len(lane.drafts) <= (ask.unread > 0), "asked again before the last drafts were verified")
        require(self.state_probe(stream) == tuple(stream.context[:-1]), "the drafter's rows are not the stream's")

    def state_probe(self, stream: Stream) -> tuple[int, ...]:
        """The tokens that its cache holds for a stream."""
        known, rows = self._lane(stream).known, self.target.page_rows
        return tuple(self.cells[stream.pages[place // rows]][place % rows] for place in range(known))

    def _write(self, stream: Stream, position: int, tokens: Sequence[int]) -> None:
        rows = self.target.page_rows
        for place, token in enumerate(tokens, start=position):
            self.cells[stream.pages[place // rows]][place % rows] = token

    def _drafts(self, ask: Ask) -> tuple[int, ...]:
        stream, count = ask.stream, ask.depth
        if self.mode == "short":
            count //= 2
        if self.mode == "empty":
            count = 0
        if self.mode == "garbage":
            return tuple(self._random.randrange(VOCAB) for _ in range(count))
        seen = self._text(ask)
        right: list[int] = []
        for _ in range(count):
            right.append(stream.request.sampling((*seen, *right), len(stream.request.prompt)))
        return tuple(self._spoiled(stream, len(seen), right))

    def _text(self, ask: Ask) -> tuple[int, ...]:
        """What the drafts come after, as its cache and the device have it."""
        stream = ask.stream
        if ask.unread:
            return self.target.text_in_flight(stream)
        self._write(stream, len(stream.context) - 1, (stream.context[-1],))
        return (*self.state_probe(stream), stream.context[-1])

    def _spoiled(self, stream: Stream, first: int, right: list[int]) -> list[int]:
        wrong = [(token + 1) % VOCAB for token in right]
        match self.mode:
            case "wrong":
                return wrong
            case "mixed":
                return right[: self.k] + wrong[self.k :]
            case "hostile" if right:
                place = self._random.randrange(len(right))
                return [*right[:place], self._random.choice([VOCAB, -1, 1 << 40, EOS]), *right[place + 1 :]]
            case "by_place" if self.lands is not None:
                return [
                    token if self.lands(stream, first + place) else (token + 1) % VOCAB
                    for place, token in enumerate(right)
                ]
        return right
