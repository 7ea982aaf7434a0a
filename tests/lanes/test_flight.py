from __future__ import annotations

from typing import Any

import pytest

from tfjax.lanes.flight import Flight
from tfjax.lanes.stream import Request, Stream, Times
from tfjax.lanes.window import Window


def window(**parts: Any) -> Window:
    return Window(Stream(Request("r", (1,), 9), 10, Times(0.0)), 0, 1, **parts)


@pytest.mark.parametrize(
    ("windows", "held", "rows", "drafting"),
    [
        ([{}], (0, 0), 1, 0),
        ([{"drafts": (2, 3)}, {}], (0, 0), 4, 1),
        ([{"drafts": (2, 3), "forced": 2}], (0, 0), 3, 0),
        ([{"drafts": (2, 3, 4), "forced": 2}], (0, 0), 4, 1),
        ([{"held": 3}, {"held": 1}], (2, 3), 6, 2),
        ([{"held": 3}, {}], (2, 3), 5, 2),  # the drafter worked for two, whatever became of it
    ],
)
def test_rows_and_streams_that_draft(
    windows: list[dict[str, Any]], held: tuple[int, int], rows: int, drafting: int
) -> None:
    flight = Flight([window(**parts) for parts in windows], None, 0.0, held)
    assert (flight.rows, flight.drafting) == (rows, drafting)
