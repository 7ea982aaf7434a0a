"""A scripted target with a real cache, and a clock to be told the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.scripts import VOCAB, logprob_of
from tfjax.lanes.proposer import agreeing
from tfjax.lanes.stream import Stream
from tfjax.lanes.window import Result, Window

# Time.


class FakeClock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def advance_ms(self, ms: float) -> None:
        self.now_s += ms / 1000


# The target.


class BackendFailureError(RuntimeError):
    """What a scripted backend raises where it was told to fail."""


class BrokenContractError(BaseException):
    """The loop called a stub as it must not. No Exception, so that the loop cannot contain it."""


def require(true: bool, otherwise: str) -> None:
    if not true:
        raise BrokenContractError(otherwise)


@dataclass(slots=True)
class Lane:
    """A lane of the scripted backend: committed length, windows that wait for their commit.

    `landed` is where the next window begins: the position after what the last one keeps, and the token drawn for it.
    """

    stream: Stream
    committed: int = 0
    uncommitted: list[Window] = field(default_factory=list)
    landed: tuple[int, int] | None = None
    first: tuple[Result, float] | None = None


class ScriptedBackend:
    """A target that reads its whole context from cache pages before each draw, and checks how it is called.

    Rows are written to the page and place of their position; a draw sees exactly what lies there. So a row that is
    stale, not rolled back, or another lane's changes what is drawn, as it would in a real model. The stream's
    `request.sampling` is its script.

    `fail_at` maps a method's name to the numbers of its calls (from 1) that raise; `not_finite` maps a request's id to
    the position from which its numbers are not finite. With a clock, the device works through its queue at `window_ms`
    of each forward's width, and whoever reads waits for it. With `held_on_target` held drafts are taken from the
    drafter on the device, by the hook `held_drafts` that it sets. With `lands` it takes
    windows behind those in flight.
    """

    def __init__(
        self,
        *,
        pages: int = 64,
        page_rows: int = 4,
        lanes: int = 32,
        widths: Sequence[int] = (2, 4, 8, 16, 32, 64),
        window_ms: Mapping[int, float] | None = None,
        chunk_rows: Sequence[int] = (4, 16),
        clock: FakeClock | None = None,
        fail_at: Mapping[str, set[int]] | None = None,
        not_finite: Mapping[str, int] | None = None,
        logprobs: bool = True,
        held_on_target: bool = False,
        lands: bool = False,
    ) -> None:
        self.widths = widths
        self.window_ms: Mapping[int, float] = window_ms or {}
        self.chunk_rows = chunk_rows
        self.page_rows = page_rows
        self.cells = [[-1] * page_rows for _ in range(pages)]
        self.lanes: dict[int, Lane] = {}
        self.most_lanes = lanes
        self.clock = clock
        self.fail_at = fail_at or {}
        self.not_finite = not_finite or {}
        self.logprobs = logprobs
        self.held_on_target = held_on_target
        self.lands = lands
        self.held_drafts: Callable[[Window], tuple[int, ...]] | None = None
        self.broken: Exception | None = None
        self.failed = False
        self.calls: Counter[str] = Counter()
        self.forwards: list[tuple[Window, ...]] = []
        self.chunks: list[tuple[str, int, int]] = []
        self._unread: dict[int, tuple[list[Result], float]] = {}
        self._device_free_s = 0.0

    # The protocol.

    def prefill_begin(self, stream: Stream) -> None:
        self._call("prefill_begin")
        require(0 <= stream.lane < self.most_lanes, "lane outside the backend")
        require(stream.lane not in self.lanes, "lane taken twice")
        require(stream.cache_length < len(stream.request.prompt), "no prompt row left to compute")
        require(stream.cache_length % self.page_rows == 0, "a reused prefix ends within a page")
        self.lanes[stream.lane] = Lane(stream, committed=stream.cache_length)

    def prefill_step(self, stream: Stream, start: int, stop: int) -> None:
        self._call("prefill_step")
        lane = self._lane(stream)
        require(lane.committed == start < stop <= len(stream.request.prompt), "chunk out of order")
        require(stop - start <= self.chunk_rows[-1], "chunk too long")
        self.chunks.append((stream.request.id, start, stop))
        self._write(stream, start, stream.request.prompt[start:stop])
        lane.committed = stop
        ready_s = self._queue_time(stop - start)
        if stop == len(stream.request.prompt):
            lane.first = self._draw(stream, stop - 1, 1), ready_s

    def first(self, stream: Stream) -> Result:
        self._call("first")
        lane = self._lane(stream)
        if lane.first is None:
            raise BrokenContractError("prompt not whole")
        result, ready_s = lane.first
        self.wait_until(ready_s)
        return result

    def verify(self, windows: Sequence[Window]) -> int:
        self._call("verify")
        self._check_forward(windows)
        results = []
        for window in windows:
            lane = self._lane(window.stream)
            position, pending = self._begins(lane, window)
            held = self.held_drafts(window) if window.held and self.held_drafts is not None else ()
            self._write(window.stream, position, (pending, *window.drafts, *held))
            result = replace(self._draw(window.stream, position, window.rows), drafts=held)
            accepted = agreeing((*window.drafts, *held), result.draws)
            lane.landed = position + accepted + 1, result.draws[accepted]
            lane.uncommitted.append(window)
            results.append(result)
        self.forwards.append(tuple(windows))
        ticket = len(self.forwards)
        self._unread[ticket] = results, self._queue_time(sum(window.rows for window in windows))
        return ticket

    def _begins(self, lane: Lane, window: Window) -> tuple[int, int]:
        if window.pending is not None:
            return window.position, window.pending
        if lane.landed is None:
            raise BrokenContractError("pending token on no device")
        require(window.position <= lane.landed[0], "a window that is said to begin after what is kept")
        return lane.landed

    def read(self, ticket: int) -> Sequence[Result]:
        self._call("read")
        results, ready_s = self._unread.pop(ticket)
        self.wait_until(ready_s)
        return results

    def keep(self, windows: Sequence[Window], kept: Sequence[int]) -> None:
        self._call("keep")
        for window, count in zip(windows, kept, strict=True):
            lane = self._lane(window.stream)
            require(bool(lane.uncommitted), "kept a window that was not verified")
            require(lane.uncommitted.pop(0) is window, "kept another window than verified")
            require(0 <= count <= window.rows, "kept more rows than verified")
            require(window.position == lane.committed, "kept rows out of order")
            lane.committed += count

    def release(self, stream: Stream) -> None:
        self._call("release")
        if stream.lane in self.lanes and self.lanes[stream.lane].stream is stream:
            uncommitted = self.lanes.pop(stream.lane).uncommitted
            require(self.failed or not uncommitted, "a verified window was neither kept nor dropped")

    # What tests look at.

    def text_in_flight(self, stream: Stream) -> tuple[int, ...]:
        """The stream's text on the device: with what its window in flight keeps, and the token after that."""
        landed = self._lane(stream).landed
        if landed is None:
            raise BrokenContractError("no window in flight")
        return (*self._read_back(stream, landed[0]), landed[1])

    def state_probe(self, stream: Stream) -> tuple[int, ...]:
        """The tokens that the cache holds as committed for a stream."""
        return self._read_back(stream, self._lane(stream).committed)

    @property
    def draft_windows(self) -> list[tuple[str, int, tuple[int, ...]]]:
        """(request id, position, drafts) of every window with drafts, in order."""
        return [(w.stream.request.id, w.position, w.drafts) for windows in self.forwards for w in windows if w.drafts]

    # How it works.

    def _call(self, name: str) -> None:
        self.calls[name] += 1
        if self.calls[name] in self.fail_at.get(name, ()):
            self.failed = True
            raise BackendFailureError(f"{name} call {self.calls[name]}")

    def _lane(self, stream: Stream) -> Lane:
        require(stream.lane in self.lanes, "lane used before it was taken")
        require(self.lanes[stream.lane].stream is stream, "lane used by a stream that does not hold it")
        return self.lanes[stream.lane]

    def _check_forward(self, windows: Sequence[Window]) -> None:
        require(bool(windows), "empty forward")
        require(sum(window.rows for window in windows) <= self.widths[-1], "wider than the widest forward")
        streams = [window.stream for window in windows]
        require(len(set(streams)) == len(streams), "a stream twice in one forward")
        for window in windows:
            lane = self._lane(window.stream)
            if lane.uncommitted:
                require(self.lands and window.pending is None, "next window before the last one was committed")
                require(len(lane.uncommitted) == 1, "two rounds ahead")
            else:
                require(window.position == lane.committed, "window at another position than the cache's end")
            require(
                all(0 <= token < VOCAB for token in window.drafts), "an id outside the vocabulary reached the device"
            )
            require(window.forced <= len(window.drafts), "more forced rows than rows")
            require(self.held_on_target or not window.held, "held drafts, and the target cannot take them")
        self._check_pages()

    def _check_pages(self) -> None:
        """A page is held by one lane, or, once its rows are committed, by lanes that share a prefix: in one place."""
        held: dict[int, tuple[int, bool]] = {}
        for lane in self.lanes.values():
            for place, page in enumerate(lane.stream.pages):
                here = place, (place + 1) * self.page_rows <= lane.committed
                require(held.setdefault(page, here) == here and (here[1] or held[page] is here), "a page held twice")

    def _write(self, stream: Stream, position: int, tokens: Sequence[int]) -> None:
        require(position + len(tokens) <= len(stream.pages) * self.page_rows, "row without a page")
        for place, token in enumerate(tokens, start=position):
            self.cells[stream.pages[place // self.page_rows]][place % self.page_rows] = token

    def _read_back(self, stream: Stream, length: int) -> tuple[int, ...]:
        tokens: list[int] = []
        for page in stream.pages[: -(-length // self.page_rows)]:
            tokens += self.cells[page]
        return tuple(tokens[:length])

    def _draw(self, stream: Stream, position: int, rows: int) -> Result:
        seen = self._read_back(stream, position + rows)
        prompt = len(stream.request.prompt)
        draws = [stream.request.sampling(seen[:end], prompt) for end in range(position + 1, position + rows + 1)]
        if position >= self.not_finite.get(stream.request.id, position + 1):
            return Result(draws, error="numbers are not finite")
        if not self.logprobs:
            return Result(draws)
        return Result(draws, [logprob_of((*seen[: position + 1 + row], draw)) for row, draw in enumerate(draws)])

    def _queue_time(self, rows: int) -> float:
        """When the device will be done with a forward of so many rows that is queued now."""
        width = next((width for width in self.widths if width >= rows), self.widths[-1])
        return self.queue_ms(self.window_ms.get(width, 0.0))

    def queue_ms(self, ms: float) -> float:
        """When the device will be done with work of this length that is queued now."""
        if self.clock is not None:
            self._device_free_s = max(self.clock(), self._device_free_s) + ms / 1000
        return self._device_free_s

    def wait_until(self, ready_s: float) -> None:
        if self.clock is not None:
            self.clock.now_s = max(self.clock.now_s, ready_s)
