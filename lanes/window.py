"""What goes into a verify forward and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfjax.lanes.stream import Stream


class MixedDrafts(ValueError):
    """A window with drafts both on the host and held by the drafter."""


class WindowMismatch(RuntimeError):
    """Other windows are kept than were verified."""


@dataclass(slots=True)
class Window:
    """One stream's rows in one forward: its pending token, then its drafts. Only `land` changes one.

    Attributes:
        stream: the stream that the rows belong to.
        position: absolute position of the first row; the least it can be while the stream's previous window is unread.
        pending: the token of the first row, or None where it was queued before the stream's previous window was read:
            it follows whatever that keeps, so its first token lies on the device.
        drafts: the tokens of the following rows, in order. Forced tokens stand here too.
        forced: how many of `drafts` are forced, that is, kept whatever the target draws.
        held: drafts of the following rows that lie with the drafter; the host knows their number only.

    Raises:
        MixedDrafts: drafts of both sorts.
    """

    stream: Stream
    position: int
    pending: int | None
    drafts: tuple[int, ...] = ()
    forced: int = 0
    held: int = 0

    def __post_init__(self) -> None:
        if self.held and self.drafts:
            raise MixedDrafts(f"{self.held} held drafts beside {len(self.drafts)} of the host; a window takes one sort")

    def land(self) -> None:
        """The stream's previous window was read, so that it is known where this one begins."""
        self.position = self.stream.cache_length

    @property
    def rows(self) -> int:
        return 1 + self.held + len(self.drafts)


@dataclass(slots=True)
class Result:
    """What the target says about one window. Not frozen, for speed; nobody changes one.

    Attributes:
        draws: the target's own draw after each row; `draws[i]` belongs at `position + i + 1`.
        logprobs: one opaque entry per row when the stream asked for them, else None.
        error: set when the row's numbers were not finite; the stream then ends with this reason.
        drafts: the held drafts of the window, now known.
    """

    draws: Sequence[int]
    logprobs: Sequence[Any] | None = None
    error: str | None = None
    drafts: Sequence[int] = ()
