from __future__ import annotations

import pytest

from tfjax.lanes.pages import PagePool


def test_pages_come_back_and_go_out_again() -> None:
    pool = PagePool(3, 4)
    first = pool.take(2)
    assert pool.free == 1
    pool.give_back(first)
    assert pool.free == 3
    assert sorted(pool.take(3)) == [0, 1, 2]


def test_more_than_free_is_an_error_and_takes_nothing() -> None:
    pool = PagePool(3, 4)
    with pytest.raises(ValueError, match="4 pages asked for, 3 of 3 are free"):
        pool.take(4)
    assert pool.free == 3


def test_a_page_given_back_twice_is_an_error() -> None:
    pool = PagePool(3, 4)
    pages = pool.take(1)
    pool.give_back(pages)
    with pytest.raises(ValueError, match="nobody holds it"):
        pool.give_back(pages)
    assert pool.free == 3


@pytest.mark.parametrize(("rows", "pages"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2)])
def test_pages_for_rows(rows: int, pages: int) -> None:
    assert PagePool(3, 4).pages_for(rows) == pages


@pytest.mark.parametrize(("pages", "rows"), [(0, 4), (4, 0), (-1, 4)])
def test_an_empty_pool_is_refused(pages: int, rows: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        PagePool(pages, rows)
