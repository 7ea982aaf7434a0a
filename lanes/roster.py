"""Who waits and who runs: lanes and pages are given and taken here."""

from __future__ import annotations

from collections import deque

from tfjax.lanes.memory import Memory
from tfjax.lanes.pages import PagePool
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request, Stream, Times


class Refused(ValueError):
    """A request that this loop could never serve."""


class Roster:
    """Waiting and running streams, both in the order in which they came."""

    def __init__(self, settings: Settings) -> None:
        self.waiting: deque[Stream] = deque()
        self.running: list[Stream] = []
        pool = PagePool(settings.pages, settings.page_rows, settings.prompt_pages)
        self.memory = Memory(pool, settings.growth_rows)
        self._settings = settings
        self._free_lanes = list(range(settings.lanes - 1, -1, -1))

    @property
    def decoding(self) -> list[Stream]:
        """Streams that can have rows in the next round."""
        return [stream for stream in self.running if stream.decoding and not stream.paused]

    @property
    def filling(self) -> list[Stream]:
        """Streams whose prompt is not yet whole in the cache."""
        return [stream for stream in self.running if not stream.decoding and not stream.paused]

    @property
    def any_paused(self) -> bool:
        """Whether a running stream waits for pages."""
        return any(stream.paused for stream in self.running)

    def add(self, request: Request, now_s: float) -> Stream:
        """Queue a request. Raises Refused, with limit and remedy, where it could not be served even alone."""
        self._check(request)
        limit = min(len(request.prompt) + request.max_new, self._settings.context)
        pool = self.memory.pool
        if pool.pages_for(limit) > pool.size:
            raise Refused(
                f"{limit} tokens of prompt and reply need {pool.pages_for(limit)} cache pages of {pool.page_rows}, "
                f"and there are {pool.size}; ask for fewer tokens, or serve with more memory"
            )
        stream = Stream(request, limit, Times(admitted_s=now_s))
        self.waiting.append(stream)
        return stream

    def start_next(self, now_s: float) -> Stream | None:
        """Give the first waiting stream a lane and pages; None where it has to wait, or nobody waits.

        Its `cache_length` says how much of its prompt is in the cache already. Nobody starts while an older stream is
        short of pages.
        """
        if not self.waiting or not self._free_lanes or self.any_paused:
            return None
        if not self.memory.begin(self.waiting[0]):
            return None
        stream = self.waiting.popleft()
        stream.lane = self._free_lanes.pop()
        stream.times.started_s = now_s
        self.running.append(stream)
        return stream

    def shortage(self) -> str | None:
        """Give all running streams pages for their next round; what is short where not even one can go on."""
        if not self.running or self.memory.secure(self.running):
            return None
        return self.memory.shortage(len(self.running))

    def prompt_filled(self, stream: Stream) -> None:
        """Others may share the stream's prompt: it is whole in the cache, and the draw after it was sound."""
        self.memory.prompt_filled(stream)

    def remove(self, stream: Stream) -> None:
        """Take the stream out, and its lane and pages back."""
        if stream.lane < 0:
            self.waiting.remove(stream)
            return
        self.running.remove(stream)
        self._free_lanes.append(stream.lane)
        self.memory.end(stream)

    def _check(self, request: Request) -> None:
        size, vocab_size, context = len(request.prompt), self._settings.vocab_size, self._settings.context
        if size < 1 or request.max_new < 1:
            raise Refused(f"{size} prompt tokens and {request.max_new} to generate; both must be at least 1")
        if not 0 <= min(request.prompt) <= max(request.prompt) < vocab_size:
            raise Refused(f"the prompt holds token ids outside 0..{vocab_size - 1}")
        if size >= context:
            raise Refused(
                f"a prompt of {size} tokens leaves no room for a reply in a context of {context}; "
                "shorten it or raise --context"
            )
