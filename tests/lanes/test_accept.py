from __future__ import annotations

import pytest

from tfjax.lanes.accept import accept
from tfjax.lanes.stream import Request, Stream, Times
from tfjax.lanes.window import Window


def window(drafts: tuple[int, ...], forced: int = 0, owed: int = 0) -> Window:
    """A window whose first drafts are forced, of a stream that owes so many forced tokens (100, 101, ...) more."""
    stream = Stream(Request("r", (1,), 9), 10, Times(0.0))
    stream.forced.extend([*drafts[:forced], *range(100, 100 + owed)])
    return Window(stream, 0, 1, drafts, forced)


@pytest.mark.parametrize(
    ("drafts", "forced", "draws", "tokens"),
    [
        ((), 0, [5], [5]),
        ((5,), 0, [5, 6], [5, 6]),
        ((5,), 0, [4, 6], [4]),
        ((5, 6, 7), 0, [5, 6, 7, 8], [5, 6, 7, 8]),
        ((5, 6, 7), 0, [5, 9, 7, 8], [5, 9]),
        ((5, 6, 7), 0, [5, 6, 9, 8], [5, 6, 9]),
        ((5, 6), 2, [1, 2, 3], [5, 6, 3]),
        ((5, 6, 7), 1, [1, 6, 7, 8], [5, 6, 7, 8]),
        ((5, 6, 7), 1, [1, 2, 7, 8], [5, 2]),
    ],
)
def test_drafts_are_kept_while_they_equal_the_draw(
    drafts: tuple[int, ...], forced: int, draws: list[int], tokens: list[int]
) -> None:
    assert accept(window(drafts, forced), draws) == tokens


def test_a_draft_that_matches_after_a_miss_is_not_kept() -> None:
    assert accept(window((5, 6, 7)), [9, 6, 7, 8]) == [9]


@pytest.mark.parametrize(("drafts", "forced"), [((), 0), ((5,), 1), ((5, 6), 2)])
def test_a_forced_token_without_a_row_takes_the_place_of_the_draw(drafts: tuple[int, ...], forced: int) -> None:
    assert accept(window(drafts, forced, owed=2), [1, 2, 3]) == [*drafts, 100]
