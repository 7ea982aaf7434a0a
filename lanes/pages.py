"""The cache's pages: who may write them, and which of them keep their rows for later."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence


class PagePool:
    """A fixed number of cache pages of `page_rows` positions each.

    A page is blank, or held by one or several streams, or idle: its rows are kept, and nobody holds it.
    """

    def __init__(self, pages: int, page_rows: int, most_idle: int = 0) -> None:
        """`most_idle` is how many pages may be idle at once; the one that was held longest ago goes first."""
        if pages < 1 or page_rows < 1:
            raise ValueError(f"a pool of {pages} pages of {page_rows} rows holds nothing; both must be at least 1")
        self.size = pages
        self.page_rows = page_rows
        self.most_idle = most_idle
        self._blank = list(range(pages - 1, -1, -1))
        self._holders: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._forget: dict[int, Callable[[int], None]] = {}

    @property
    def free(self) -> int:
        """Pages that nobody holds."""
        return len(self._blank) + len(self._idle)

    @property
    def idle(self) -> int:
        return len(self._idle)

    def pages_for(self, rows: int) -> int:
        """Pages that hold `rows` positions."""
        return -(-rows // self.page_rows)

    def free_beside(self, pages: Iterable[int]) -> int:
        """Pages that nobody holds, besides these."""
        return self.free - sum(page in self._idle for page in pages)

    def take(self, count: int) -> list[int]:
        """Hand out `count` pages, blank ones first. Raises ValueError where fewer are free: ask `free` first."""
        if not 0 <= count <= self.free:
            raise ValueError(f"{count} pages asked for, {self.free} of {self.size} are free")
        while len(self._blank) < count:
            self._blank_oldest()
        pages = [self._blank.pop() for _ in range(count)]
        self._holders.update(dict.fromkeys(pages, 1))
        return pages

    def hold(self, pages: Iterable[int]) -> None:
        """Add a holder to each page. Raises ValueError for a blank one: its rows are nobody's."""
        for page in pages:
            if page not in self._holders and page not in self._idle:
                raise ValueError(f"page {page} is to be shared but holds no rows")
            self._idle.pop(page, None)
            self._holders[page] = self._holders.get(page, 0) + 1

    def keep(self, page: int, forget: Callable[[int], None]) -> None:
        """Keep a held page's rows once nobody holds it; `forget(page)` is called when they are given up."""
        if page not in self._holders:
            raise ValueError(f"page {page} is to be kept but nobody holds it")
        self._forget[page] = forget

    def give_back(self, pages: Sequence[int]) -> None:
        """Take a holder from each page, the last page first. Raises ValueError for a page that nobody holds."""
        for page in reversed(pages):
            if page not in self._holders:
                raise ValueError(f"page {page} is given back but nobody holds it")
            self._holders[page] -= 1
            if not self._holders[page]:
                del self._holders[page]
                self._leave(page)

    def _leave(self, page: int) -> None:
        if page not in self._forget:
            self._blank.append(page)
            return
        self._idle[page] = None
        if len(self._idle) > self.most_idle:
            self._blank_oldest()

    def _blank_oldest(self) -> None:
        page, _ = self._idle.popitem(last=False)
        self._forget.pop(page)(page)
        self._blank.append(page)
