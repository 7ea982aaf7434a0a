from __future__ import annotations

from collections.abc import Callable

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


def kept(pool: PagePool, count: int, forget: Callable[[int], None] = lambda page: None) -> list[int]:
    """Pages that were held and are idle now."""
    pages = pool.take(count)
    for page in pages:
        pool.keep(page, forget)
    pool.give_back(pages)
    return pages


def test_a_shared_page_is_free_when_its_last_holder_leaves() -> None:
    pool = PagePool(3, 4)
    pages = pool.take(2)
    pool.hold(pages)
    pool.give_back(pages)
    assert pool.free == 1
    pool.give_back(pages)
    assert pool.free == 3


def test_a_kept_page_is_idle_when_its_last_holder_leaves_and_can_be_held_again() -> None:
    pool = PagePool(3, 4, most_idle=3)
    pages = kept(pool, 2)
    assert (pool.idle, pool.free, pool.free_beside(pages)) == (2, 3, 1)
    pool.hold(pages)
    assert (pool.idle, pool.free, pool.free_beside(pages)) == (0, 1, 1)
    pool.give_back(pages)
    assert (pool.idle, pool.free) == (2, 3)


def test_a_blank_page_cannot_be_shared_nor_a_free_one_kept() -> None:
    pool = PagePool(3, 4)
    with pytest.raises(ValueError, match="page 1 is to be shared but holds no rows"):
        pool.hold([1])
    with pytest.raises(ValueError, match="page 1 is to be kept but nobody holds it"):
        pool.keep(1, lambda page: None)


def test_blank_pages_go_out_before_idle_ones() -> None:
    pool = PagePool(5, 4, most_idle=5)
    idle = kept(pool, 2)
    assert not set(pool.take(3)) & set(idle)
    assert set(pool.take(2)) == set(idle)


def test_the_last_page_of_those_given_back_is_forgotten_first() -> None:
    forgotten: list[int] = []
    pool = PagePool(5, 4, most_idle=5)
    first, second = kept(pool, 2, forgotten.append), kept(pool, 3, forgotten.append)
    pool.hold(first)
    pool.give_back(first)
    pool.take(4)
    assert forgotten == [*reversed(second), first[1]]


def test_a_page_that_was_forgotten_is_not_kept_again() -> None:
    pool = PagePool(1, 4, most_idle=1)
    kept(pool, 1)
    pool.give_back(pool.take(1))
    assert (pool.idle, pool.free) == (0, 1)


def test_no_more_pages_are_idle_than_may_be() -> None:
    forgotten: list[int] = []
    pool = PagePool(5, 4, most_idle=2)
    pages = kept(pool, 4, forgotten.append)
    assert (pool.idle, pool.free) == (2, 5)
    assert forgotten == [pages[3], pages[2]]
