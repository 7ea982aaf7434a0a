"""A forward under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfjax.lanes.window import Window


@dataclass(slots=True)
class Flight:
    """A forward that is queued on the device and not yet read.

    Attributes:
        windows: its rows.
        ticket: the backend's handle to read it by.
        began_s: when its round began: before the drafts for it were waited for.
        held: streams that the drafter drafted for since the flight before, and the most drafts of one of them.
        kept: whether its windows are committed already.
    """

    windows: Sequence[Window]
    ticket: Any
    began_s: float
    held: tuple[int, int] = (0, 0)
    kept: bool = False

    @property
    def rows(self) -> int:
        return sum(window.rows for window in self.windows)

    @property
    def drafting(self) -> int:
        """Streams whose drafts it verifies."""
        return self.held[0] or sum(len(window.drafts) > window.forced for window in self.windows)
