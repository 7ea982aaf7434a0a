"""Of which rows of the cache's pages a drafter has read the features."""

from __future__ import annotations

from collections.abc import Sequence

from tfjax.engine.rows_buffer import Run
from tfjax.kernels.paged_attention import PAGE_ROWS


class KnownRows:
    """For every page how many rows, from its first on, are known.

    Whoever fills a page starts at its first row, so the count also tells a page that another stream has taken since.
    """

    def __init__(self, pages: int) -> None:
        self._rows = [0] * pages

    def forget(self) -> None:
        """Nothing is known any more."""
        self._rows = [0] * len(self._rows)

    def note(self, pages: Sequence[int], run: Run, *, known: bool) -> None:
        """The target computed rows of a lane that holds these pages; whether the drafter reads them."""
        stop = run.position + run.rows
        for number in range(run.position // PAGE_ROWS, -(-stop // PAGE_ROWS)):
            start = number * PAGE_ROWS
            first, last = max(run.position - start, 0), min(stop - start, PAGE_ROWS)
            page = pages[number]
            if self._rows[page] >= first:
                self._rows[page] = last if known else first

    def first_page(self, pages: Sequence[int], rows: int) -> int | None:
        """The page from which on all of a context's `rows` rows are known; None where its last rows are not."""
        whole, rest = divmod(rows, PAGE_ROWS)
        if rest and self._rows[pages[whole]] < rest:
            return None
        known = list(map(self._rows.__getitem__, pages[:whole]))
        if known.count(PAGE_ROWS) == whole:
            return 0
        return next(number for number in range(whole, 0, -1) if known[number - 1] < PAGE_ROWS)
