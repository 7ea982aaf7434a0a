"""The cache's pages and who may write them."""

from __future__ import annotations

from collections.abc import Iterable


class PagePool:
    """A fixed number of cache pages of `page_rows` positions each."""

    def __init__(self, pages: int, page_rows: int) -> None:
        if pages < 1 or page_rows < 1:
            raise ValueError(f"a pool of {pages} pages of {page_rows} rows holds nothing; both must be at least 1")
        self.size = pages
        self.page_rows = page_rows
        self._free = list(range(pages - 1, -1, -1))
        self._held: set[int] = set()

    @property
    def free(self) -> int:
        return len(self._free)

    def pages_for(self, rows: int) -> int:
        """Pages that hold `rows` positions."""
        return -(-rows // self.page_rows)

    def take(self, count: int) -> list[int]:
        """Hand out `count` pages. Raises ValueError where fewer are free: ask `free` first."""
        if not 0 <= count <= len(self._free):
            raise ValueError(f"{count} pages asked for, {len(self._free)} of {self.size} are free")
        pages = [self._free.pop() for _ in range(count)]
        self._held.update(pages)
        return pages

    def give_back(self, pages: Iterable[int]) -> None:
        """Return pages. Raises ValueError for a page that nobody holds."""
        for page in pages:
            if page not in self._held:
                raise ValueError(f"page {page} is given back but nobody holds it")
            self._held.remove(page)
            self._free.append(page)
