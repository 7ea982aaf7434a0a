from __future__ import annotations

import pytest

from tfjax.lanes.memory import Memory
from tfjax.lanes.pages import PagePool
from tfjax.lanes.room import Room
from tfjax.lanes.stream import Request, Stream, Times


def room_of(
    most: int = 9, pages: int = 10, prompt: int = 5, emitted: int = 1, max_new: int = 30
) -> tuple[Room, Stream]:
    stream = Stream(Request("r", (1,) * prompt, max_new), prompt + max_new, Times(0.0))
    stream.context += [2] * emitted
    stream.pages = list(range(pages))
    return Room(Memory(PagePool(20, 4), 8), most), stream


@pytest.mark.parametrize(
    ("limits", "drafts"),
    [
        ({}, 9),
        ({"most": 3}, 3),
        ({"max_new": 6}, 4),  # five more tokens, the last of which is the target's own draw
        ({"max_new": 2}, 0),
        ({"max_new": 1}, 0),
        ({"pages": 3}, 6),  # twelve positions, six of them taken with the pending token's
        ({"pages": 2, "emitted": 3}, 0),
        ({"pages": 1}, 0),
        ({"most": 0}, 0),
    ],
)
def test_the_narrowest_limit_counts(limits: dict[str, int], drafts: int) -> None:
    room, stream = room_of(**limits)
    assert room.drafts(stream) == drafts


def test_pages_may_be_fewer_than_the_context_needs() -> None:
    """A newer stream's pages are taken from it at times; then even its pending token has no place."""
    room, stream = room_of(pages=1)
    assert room.spare_rows(stream) == -2
