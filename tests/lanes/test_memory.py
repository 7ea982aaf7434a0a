from __future__ import annotations

import pytest

from tfjax.lanes.memory import Memory
from tfjax.lanes.pages import PagePool
from tfjax.lanes.stream import Request, Stream, Times


def stream(prompt: int, max_new: int, memory: Memory) -> Stream:
    new = Stream(Request("r", (1,) * prompt, max_new), prompt + max_new, Times(0.0))
    assert memory.begin(new)
    new.cache_length = prompt
    return new


def memory(pages: int, growth_rows: int) -> Memory:
    return Memory(PagePool(pages, 4), growth_rows)


@pytest.mark.parametrize(("growth", "pages"), [(1, 3), (8, 4), (2048, 6)])
def test_a_stream_begins_with_its_prompt_and_one_growth(growth: int, pages: int) -> None:
    assert len(stream(8, 16, memory(9, growth)).pages) == pages


def test_nothing_is_taken_where_not_all_is_free() -> None:
    small = memory(3, 8)
    assert not small.begin(Stream(Request("r", (1,) * 8, 16), 24, Times(0.0)))
    assert small.pool.free == 3


def test_a_stream_grows_only_when_its_next_row_has_no_page() -> None:
    roomy = memory(9, 8)
    one = stream(8, 16, roomy)
    one.cache_length = 15
    assert roomy.secure([one])
    assert len(one.pages) == 4
    one.cache_length = 16
    assert roomy.secure([one])
    assert len(one.pages) == 6


def test_growth_never_passes_the_limit() -> None:
    roomy = memory(9, 2048)
    one = stream(8, 16, roomy)
    one.cache_length = 23
    assert roomy.secure([one])
    assert len(one.pages) == 6


def test_forced_tokens_need_pages_too() -> None:
    roomy = memory(9, 1)
    one = stream(8, 16, roomy)
    one.forced.extend([1] * 9)
    assert roomy.secure([one])
    assert roomy.rows(one) >= 8 + 1 + 9


def test_the_newest_stream_gives_back_what_it_holds_in_advance() -> None:
    tight = memory(8, 8)
    old, new = stream(8, 16, tight), stream(8, 16, tight)
    assert tight.pool.free == 0
    old.cache_length = 16
    assert tight.secure([old, new])
    assert not old.paused
    assert tight.rows(old) >= 17
    assert tight.rows(new) >= 9, "the new stream goes on too, on what is left"
    assert not new.paused


def test_a_stream_without_a_page_is_paused_and_resumed() -> None:
    tight = memory(6, 1)
    old, new = stream(8, 16, tight), stream(8, 16, tight)
    old.cache_length = new.cache_length = 12
    assert not tight.secure([old, new])
    assert old.paused
    assert new.paused
    tight.end(new)
    assert tight.secure([old])
    assert not old.paused


def test_the_older_stream_goes_first() -> None:
    tight = memory(7, 1)
    old, new = stream(8, 16, tight), stream(8, 16, tight)
    old.cache_length = new.cache_length = 12
    assert tight.secure([old, new])
    assert [old.paused, new.paused] == [False, True]


def test_the_prompt_of_a_stream_being_filled_stays() -> None:
    tight = memory(6, 4)
    old, new = stream(4, 16, tight), stream(12, 16, tight)
    new.cache_length = 4
    old.cache_length = 8
    assert tight.secure([old, new])
    assert not old.paused
    assert tight.rows(new) == 12


def test_the_newest_gives_first() -> None:
    tight = memory(12, 8)
    old, middle, new = (stream(8, 16, tight) for _ in range(3))
    old.cache_length = 16
    assert tight.secure([old, middle, new])
    assert [tight.rows(one) for one in (old, middle, new)] == [20, 16, 12]


def test_all_pages_come_back() -> None:
    roomy = memory(9, 8)
    roomy.end(stream(8, 16, roomy))
    assert roomy.pool.free == 9
