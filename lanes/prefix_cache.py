"""Finds the pages that already hold the beginning of a prompt.

A block is a page full of tokens. Its name is a hash of its parent's name and its own tokens, so a name stands for the
whole text up to the block's end, under one salt. Who holds a block holds its parents too, and leaves them later than
the block: the block that was held longest ago is always the last one of its text.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from hashlib import sha256

from tfjax.lanes.pages import PagePool
from tfjax.lanes.stream import Stream


class PrefixCache:
    """Blocks by name, each in one page of the pool."""

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._page_of: dict[bytes, int] = {}
        self._name_of: dict[int, bytes] = {}

    @property
    def blocks(self) -> int:
        """Blocks that are kept, whether held or idle."""
        return len(self._page_of)

    def find(self, stream: Stream) -> list[int]:
        """Pages of the longest kept beginning of a stream's prompt; at least one row of it is left to compute."""
        pages: list[int] = []
        for name in self._names(stream, len(stream.request.prompt) - 1):
            if name not in self._page_of:
                break
            pages.append(self._page_of[name])
        return pages

    def offer(self, stream: Stream, rows: int) -> None:
        """Let others share the whole blocks of a running stream's first `rows` rows.

        It ends at a block that is kept in another page: the stream does not hold that one, and must not be what keeps
        a block whose parent may go.
        """
        for own, name in zip(stream.pages, self._names(stream, rows), strict=False):
            if self._keep(name, own) != own:
                return

    def leave(self, stream: Stream, rows: int) -> None:
        """Give the stream's pages back, and keep the whole blocks of its first `rows` rows."""
        pages: list[int] = []
        whole = 0
        for own, name in zip(stream.pages, self._names(stream, rows), strict=False):
            page = self._keep(name, own)
            if page != own:  # used just as well, so it stays as long as the blocks after it
                self._pool.hold([page])
                pages.append(own)
            pages.append(page)
            whole += 1
        self._pool.give_back(pages + stream.pages[whole:])
        stream.pages = []

    def _keep(self, name: bytes, page: int) -> int:
        """The page of a block, which is `page` where the block was not kept before."""
        if name not in self._page_of:
            self._page_of[name] = page
            self._name_of[page] = name
            self._pool.keep(page, self._forget)
        return self._page_of[name]

    def _forget(self, page: int) -> None:
        del self._page_of[self._name_of.pop(page)]

    def _names(self, stream: Stream, rows: int) -> Iterator[bytes]:
        """Names of the whole blocks of a stream's first `rows` tokens, each computed once; none where none is kept."""
        if not self._pool.most_idle:
            return
        size, names = self._pool.page_rows, stream.block_names
        for place in range(rows // size):
            if place == len(names):
                parent = names[-1] if names else _root(stream.request.salt)
                names.append(_name(parent, stream.context[place * size : (place + 1) * size]))
            yield names[place]


def _root(salt: str) -> bytes:
    """The parent of a first block. The leading byte tells roots from blocks, whatever is in the salt."""
    return sha256(b"\0" + salt.encode("utf-8", "surrogatepass")).digest()


def _name(parent: bytes, tokens: list[int]) -> bytes:
    return sha256(b"\1" + parent + array("q", tokens).tobytes()).digest()
