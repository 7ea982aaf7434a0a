"""How many drafts a window can have at all."""

from __future__ import annotations

from dataclasses import dataclass

from tfjax.lanes.memory import Memory
from tfjax.lanes.stream import Stream


@dataclass(frozen=True, slots=True)
class Room:
    """The limits of one window, other than what drafts cost.

    Attributes:
        memory: whose pages the rows need.
        most_drafts: of any window.
    """

    memory: Memory
    most_drafts: int

    def drafts(self, stream: Stream) -> int:
        """Most drafts of the stream's next window: as many as its reply, its pages and the widest forward leave.

        Of a window in flight all rows may be kept.
        """
        left = min(stream.limit - 1, self.memory.rows(stream)) - len(stream.context) - stream.unread
        return min(self.most_drafts, left) if left > 0 else 0

    def spare_rows(self, stream: Stream) -> int:
        """Rows that the stream's pages hold beyond that of its pending token. Older streams may take such pages."""
        return self.memory.rows(stream) - len(stream.context)
