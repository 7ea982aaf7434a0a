from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfjax.engine.drafters.known_rows import KnownRows
from tfjax.engine.rows_buffer import Run
from tfjax.kernels.paged_attention import PAGE_ROWS


def known(*runs: tuple[int, int, bool], pages: tuple[int, ...] = (3, 1, 2)) -> KnownRows:
    """Runs of (position, rows, known) of a lane with these pages."""
    rows = KnownRows(4)
    for position, count, is_known in runs:
        rows.note(pages, Run(0, position, count), known=is_known)
    return rows


def test_nothing_is_known_at_first() -> None:
    rows = known()
    assert rows.first_page((3, 1), 0) == 0
    assert rows.first_page((3, 1), 1) is None
    assert rows.first_page((3, 1), PAGE_ROWS) == 1
    assert rows.first_page((3, 1), PAGE_ROWS + 1) is None


def test_rows_from_the_start_on() -> None:
    rows = known((0, 50, True), (50, 100, True))
    assert [rows.first_page((3, 1, 2), count) for count in (1, 64, 65, 150)] == [0, 0, 0, 0]
    assert rows.first_page((3, 1, 2), 151) is None
    assert rows.first_page((0, 1, 2), 150) == 1, "another page in front"


def test_a_window_that_was_rejected_is_overwritten() -> None:
    rows = known((0, 60, True), (60, 8, True), (61, 1, True))
    assert rows.first_page((3, 1, 2), 62) == 0
    assert rows.first_page((3, 1, 2), 63) is None
    rows.note((3, 1, 2), Run(0, 62, 8), known=True)
    assert rows.first_page((3, 1, 2), 70) == 0


def test_rows_after_a_gap_do_not_count_until_the_next_page() -> None:
    rows = known((10, 60, True))
    assert rows.first_page((3, 1, 2), 64) == 1
    assert rows.first_page((3, 1, 2), 70) == 1


def test_a_page_taken_by_a_stream_that_is_not_read() -> None:
    rows = known((0, 128, True))
    rows.note((1,), Run(1, 0, 5), known=False)
    assert rows.first_page((3, 1), 128) == 2
    rows.note((3,), Run(1, 40, 5), known=False)
    assert rows.first_page((3,), 40) == 0, "what was known of its first rows is still right"
    assert rows.first_page((3,), 41) is None


def test_forgetting() -> None:
    rows = known((0, 128, True))
    rows.forget()
    assert rows.first_page((3, 1), 128) == 2


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 40), st.booleans()), max_size=30))
def test_what_is_said_to_be_known_is(steps: list[tuple[int, int, int, bool]]) -> None:
    """Streams one after the other on shuffled pages, each growing, going back a few rows, or read no more."""
    rows, truth = KnownRows(4), [[False] * PAGE_ROWS for _ in range(4)]
    pages, length = [0, 1, 2, 3], 0
    for turn, back, count, is_known in steps:
        if turn == 2:
            pages, length = pages[1:] + pages[:1], 0
        start = max(0, length - back)
        length = min(start + count, 4 * PAGE_ROWS)
        rows.note(pages, Run(0, start, length - start), known=is_known)
        for position in range(start, length):
            truth[pages[position // PAGE_ROWS]][position % PAGE_ROWS] = is_known
        first = rows.first_page(pages, length)
        said = range(length, length) if first is None else range(first * PAGE_ROWS, length)
        assert all(truth[pages[position // PAGE_ROWS]][position % PAGE_ROWS] for position in said)
