"""What must hold of the prefix cache at any moment, checked from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.lanes.harness import Run
from tfjax.lanes.prefix_cache import PrefixCache
from tfjax.lanes.stream import Stream


class PrefixChecks:
    """Knows what every block's name stands for, from the streams that were ever seen."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.text_of: dict[bytes, tuple[str, tuple[int, ...]]] = {}

    def check(self, streams: Iterable[Stream]) -> None:
        """Pages are blank, idle or held as often as streams hold them; blocks hold their text; beginnings stay."""
        streams = list(streams)
        size = self.run.settings.page_rows
        for stream in streams:
            for place, name in enumerate(stream.block_names):
                text = stream.request.salt, tuple(stream.context[: (place + 1) * size])
                assert self.text_of.setdefault(name, text) == text, "two texts under one name"
        memory = self.run.lanes._roster.memory
        pool, prefixes = memory.pool, memory.prefixes
        held = Counter(page for stream in streams if stream.lane >= 0 for page in stream.pages)
        assert pool._holders == held
        assert not {*pool._blank, *pool._idle} & held.keys()
        assert sorted([*pool._blank, *pool._idle, *held]) == list(range(pool.size)), "a page is lost or there twice"
        assert pool.idle <= pool.most_idle
        assert set(pool._idle) <= prefixes._name_of.keys() == pool._forget.keys()
        assert {name: page for page, name in prefixes._name_of.items()} == prefixes._page_of
        self._check_blocks(prefixes, list(pool._idle), held)

    def _check_blocks(self, prefixes: PrefixCache, idle: list[int], held: Counter[int]) -> None:
        size = self.run.settings.page_rows
        for name, page in prefixes._page_of.items():
            salt, text = self.text_of[name]
            assert tuple(self.run.backend.cells[page]) == text[-size:], "a kept block was written"
            parents = [other for other in prefixes._page_of if self.text_of[other] == (salt, text[:-size])]
            assert bool(parents) == (len(text) > size), "a block without its beginning"
            for parent in map(prefixes._page_of.__getitem__, parents):
                if page in held:
                    assert parent in held, "a block is held and its beginning is not"
                elif parent in idle:
                    assert idle.index(parent) > idle.index(page), "a beginning would go before what follows it"
