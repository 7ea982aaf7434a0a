"""Which stream holds which pages, and who waits when they are short."""

from __future__ import annotations

from collections.abc import Sequence

from tfjax.lanes.pages import PagePool
from tfjax.lanes.prefix_cache import PrefixCache
from tfjax.lanes.stream import Stream


class Memory:
    """Gives streams pages ahead of need: for the prompt and at most the next `growth_rows` positions.

    When pages run short the older stream goes first: the newest ones give back what they hold in advance, and a stream
    that cannot place its next row is paused with its state kept. A stream that begins shares the pages that hold the
    beginning of its prompt already, and never writes them: its rows start after them.
    """

    def __init__(self, pool: PagePool, growth_rows: int) -> None:
        self.pool = pool
        self.prefixes = PrefixCache(pool)
        self._growth_rows = growth_rows

    def begin(self, stream: Stream) -> bool:
        """Take pages for the prompt and the first growth; False (and nothing taken) where they are not free."""
        shared = self.prefixes.find(stream)
        count = self.pool.pages_for(min(stream.limit, len(stream.request.prompt) + self._growth_rows)) - len(shared)
        if count > self.pool.free_beside(shared):
            return False
        self.pool.hold(shared)
        stream.pages = shared + self.pool.take(count)
        stream.cache_length = stream.reused = len(shared) * self.pool.page_rows
        return True

    def secure(self, streams: Sequence[Stream]) -> bool:
        """Give every stream, oldest first, pages for its next round, or pause it. False where all had to be paused."""
        page_rows = self.pool.page_rows
        for index, stream in enumerate(streams):
            if len(stream.pages) * page_rows > _held_rows(stream) + len(stream.forced):
                stream.paused = False
                continue
            secured = self._extend(stream, self._growth_rows) or self._extend_from(stream, streams[:index:-1])
            stream.paused = not secured
        return any(not stream.paused for stream in streams)

    def rows(self, stream: Stream) -> int:
        """Positions that the stream's pages hold."""
        return len(stream.pages) * self.pool.page_rows

    def shortage(self, streams: int) -> str:
        """Says that no stream can go on."""
        return f"the cache is full: {self.pool.size} pages of {self.pool.page_rows} tokens for {streams} requests"

    def prompt_filled(self, stream: Stream) -> None:
        """Let others share the prompt from now on."""
        if stream.reason is None:
            self.prefixes.offer(stream, len(stream.request.prompt))

    def end(self, stream: Stream) -> None:
        """Take all pages back; the committed rows are kept for others, unless something went wrong with the stream."""
        self.prefixes.leave(stream, 0 if stream.reason == "error" else stream.cache_length)

    def _extend(self, stream: Stream, growth_rows: int) -> bool:
        """Make sure that the stream can place its next fixed rows, with growth to spare where pages are free."""
        held_rows = _held_rows(stream)
        needed = self.pool.pages_for(min(stream.limit, held_rows + 1 + len(stream.forced))) - len(stream.pages)
        if needed <= 0:
            return True
        if needed > self.pool.free:
            return False
        wanted = self.pool.pages_for(min(stream.limit, held_rows + growth_rows)) - len(stream.pages)
        stream.pages += self.pool.take(min(max(wanted, needed), self.pool.free))
        return True

    def _extend_from(self, stream: Stream, newer: Sequence[Stream]) -> bool:
        """The same, just so, with what newer streams hold in advance; `newer` comes newest first."""
        for other in newer:
            keep = self.pool.pages_for(_held_rows(other))
            self.pool.give_back(other.pages[keep:])
            del other.pages[keep:]
            if self._extend(stream, growth_rows=0):
                return True
        return False


def _held_rows(stream: Stream) -> int:
    """Positions that must stay: the prompt's, and every committed one."""
    return max(len(stream.request.prompt), stream.cache_length)
