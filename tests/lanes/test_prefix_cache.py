from __future__ import annotations

import pytest

from tfjax.lanes.memory import Memory
from tfjax.lanes.pages import PagePool
from tfjax.lanes.stream import Request, Stream, Times

TEXT = tuple(range(10, 40))


def memory(pages: int = 40, keep: int = 40) -> Memory:
    """Pages of 4 tokens, and streams that hold a page for what comes next."""
    return Memory(PagePool(pages, 4, keep), growth_rows=1)


def begin(here: Memory, prompt: tuple[int, ...], salt: str = "", max_new: int = 20) -> Stream:
    stream = Stream(Request("r", prompt, max_new, salt=salt), len(prompt) + max_new, Times(0.0))
    assert here.begin(stream)
    return stream


def fill(here: Memory, stream: Stream) -> Stream:
    stream.cache_length = len(stream.request.prompt)
    stream.context.append(1)
    here.prompt_filled(stream)
    return stream


def end(here: Memory, stream: Stream, reason: str = "stop") -> None:
    stream.reason = reason
    here.end(stream)


def served(here: Memory, prompt: tuple[int, ...], salt: str = "") -> list[int]:
    """The pages of a stream that came and went."""
    stream = fill(here, begin(here, prompt, salt))
    pages = stream.pages
    end(here, stream)
    return pages


@pytest.mark.parametrize(("size", "reused"), [(1, 0), (4, 0), (5, 4), (8, 4), (9, 8), (12, 8), (13, 8), (30, 8)])
def test_whole_blocks_are_reused_and_one_row_is_left_to_compute(size: int, reused: int) -> None:
    here = memory()
    pages = served(here, TEXT[:11])
    stream = begin(here, TEXT[:size])
    assert (stream.cache_length, stream.reused) == (reused, reused)
    assert stream.pages[: reused // 4] == pages[: reused // 4]
    assert len(set(stream.pages)) == len(stream.pages) == -(-(size + 1) // 4)


@pytest.mark.parametrize(("committed", "reused"), [(7, 4), (8, 8), (9, 8), (11, 8), (12, 12)])
def test_a_reply_is_reused_as_far_as_it_was_committed(committed: int, reused: int) -> None:
    here = memory()
    stream = fill(here, begin(here, TEXT[:6]))
    stream.pages += here.pool.take(2)
    stream.context[6:] = TEXT[6:14]
    stream.cache_length = committed
    end(here, stream)
    assert begin(here, TEXT).reused == reused


@pytest.mark.parametrize(("reason", "reused"), [("cancelled", 8), ("error", 0)])
def test_a_prompt_that_was_left_halfway_is_reused_unless_it_failed(reason: str, reused: int) -> None:
    here = memory()
    stream = begin(here, TEXT)
    stream.cache_length = 9
    end(here, stream, reason)
    assert here.pool.free == here.pool.size
    assert begin(here, TEXT).reused == reused


def test_a_running_stream_shares_its_prompt_once_it_is_whole_and_nothing_else() -> None:
    here = memory()
    one = begin(here, TEXT[:9])
    assert begin(here, TEXT).reused == 0
    fill(here, one)
    one.context[9:] = TEXT[9:14]
    one.cache_length = 13
    two = begin(here, TEXT)
    assert two.reused == 8
    assert two.pages[:2] == one.pages[:2]
    end(here, one)
    assert begin(here, TEXT).reused == 12


def test_a_stream_that_ended_with_its_first_token_shares_nothing_it_does_not_hold() -> None:
    here = memory()
    stream = begin(here, TEXT[:9])
    stream.cache_length = 9
    end(here, stream)
    here.prompt_filled(stream)
    assert here.prefixes.blocks == 2


def test_blocks_are_found_behind_their_own_beginning_only() -> None:
    here = memory()
    served(here, TEXT[:13])
    assert begin(here, (*TEXT[:4], 99, *TEXT[5:13])).reused == 4
    assert begin(here, TEXT[4:13]).reused == 0
    assert begin(here, (99, *TEXT[:13])).reused == 0


def test_salts_share_nothing() -> None:
    here = memory()
    served(here, TEXT, "one")
    assert [begin(here, TEXT, salt).reused for salt in ("", "two", "one")] == [0, 0, 28]


def test_what_is_held_is_never_given_to_others() -> None:
    here = memory(pages=9)
    served(here, TEXT[:12])
    holder = begin(here, TEXT[:13])
    assert holder.reused == 12
    other = begin(here, (1,) * 19)
    assert not set(holder.pages) & set(other.pages)
    assert here.pool.free == 0
    assert not here.begin(Stream(Request("r", (2,), 1), 2, Times(0.0)))
    end(here, other)
    assert begin(here, TEXT[:13]).pages[:3] == holder.pages[:3]


def test_a_shared_idle_page_is_not_counted_as_free() -> None:
    here = memory(pages=4)
    served(here, TEXT[:12])
    assert here.pool.free == 4
    assert not here.begin(Stream(Request("r", TEXT[:17], 1), 18, Times(0.0)))
    assert (here.pool.free, here.pool.idle) == (4, 3)
    assert begin(here, TEXT[:15], max_new=1).reused == 12


def test_the_text_used_longest_ago_is_forgotten_from_its_end() -> None:
    here = memory(pages=10, keep=10)
    other = tuple(range(60, 80))
    served(here, TEXT[:12])
    served(here, other[:12])
    served(here, TEXT[:12])
    blocks = []
    for needed in range(4, 11):
        stream = begin(here, (needed,) * (4 * needed - 1))
        end(here, stream, "error")
        blocks.append((begins(here, TEXT[:13]), begins(here, other[:13])))
    assert blocks == [(3, 3), (3, 2), (3, 1), (3, 0), (2, 0), (1, 0), (0, 0)]


def begins(here: Memory, prompt: tuple[int, ...]) -> int:
    """Blocks that a prompt would reuse."""
    return len(here.prefixes.find(Stream(Request("r", prompt, 1), len(prompt) + 1, Times(0.0))))


def test_no_more_is_kept_than_may_be() -> None:
    here = memory(keep=2)
    served(here, TEXT)
    assert (here.pool.idle, here.prefixes.blocks) == (2, 2)
    assert begin(here, TEXT).reused == 8


def test_nothing_is_kept_where_nothing_may_be() -> None:
    here = memory(keep=0)
    served(here, TEXT)
    stream = begin(here, TEXT)
    assert (stream.reused, stream.block_names, here.prefixes.blocks) == (0, [], 0)


def test_of_two_that_fill_one_prompt_at_once_one_is_kept() -> None:
    here = memory(pages=16)
    one, two = begin(here, TEXT[:13]), begin(here, TEXT[:13])
    assert not set(one.pages) & set(two.pages)
    fill(here, one)
    fill(here, two)
    assert here.prefixes.blocks == 3
    third = begin(here, TEXT[:13])
    assert third.pages[:3] == one.pages[:3]
    for stream in (two, third, one):
        end(here, stream)
    assert (here.pool.free, here.pool.idle) == (16, 3)


def test_what_follows_a_twin_is_kept_at_the_end_and_outlived_by_its_beginning() -> None:
    here = memory(pages=16, keep=4)
    one, two = begin(here, TEXT[:9]), begin(here, TEXT[:17])
    fill(here, one)
    fill(here, two)
    assert begins(here, TEXT[:17]) == 2, "the second stream does not hold the blocks before its own"
    end(here, one)
    served(here, (1,) * 9)
    assert here.pool.idle == 4
    end(here, two)
    assert begins(here, TEXT[:17]) == 4
    assert begins(here, (1,) * 9) == 0
