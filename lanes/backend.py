"""The lane loop's view of a model: windows in, draws out, no arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tfjax.lanes.stream import Stream
from tfjax.lanes.window import Result, Window


class Backend(Protocol):
    """A target model with state for a fixed number of lanes.

    A call may raise; the loop then ends the streams that the call was for and goes on with the others.
    """

    @property
    def widths(self) -> Sequence[int]:
        """Row counts that a verify forward pads to, ascending."""

    @property
    def window_ms(self) -> Mapping[int, float]:
        """Measured milliseconds of one verify forward by width; empty until measured."""

    @property
    def chunk_rows(self) -> Sequence[int]:
        """Prompt rows that one prefill step may take, ascending (the first of them while other streams decode)."""

    @property
    def broken(self) -> Exception | None:
        """What the device state was lost with; no stream can go on then."""

    @property
    def held_on_target(self) -> bool:
        """Whether `verify` takes windows whose drafts still lie on the device (`Window.held`)."""

    @property
    def lands(self) -> bool:
        """Whether `verify` takes windows behind those of a forward in flight, wherever these will have ended.

        Without it that is possible only where all windows of both forwards have one row, of the same streams.
        """

    def prefill_begin(self, stream: Stream) -> None:
        """Take the stream's lane: reset its state and set its sampling. Rows up to `cache_length` are there already."""

    def prefill_step(self, stream: Stream, start: int, stop: int) -> None:
        """Queue prompt rows [start, stop) of the stream. The last chunk also draws the token after the prompt."""

    def first(self, stream: Stream) -> Result:
        """Wait for the draw after the whole prompt (one row)."""

    def verify(self, windows: Sequence[Window]) -> Any:
        """Queue one forward over all windows and return a ticket for `read`."""

    def read(self, ticket: Any) -> Sequence[Result]:
        """Wait for a forward's results, one per window, in order. Forwards are read in the order queued, some never."""

    def keep(self, windows: Sequence[Window], kept: Sequence[int]) -> None:
        """Commit the first `kept[i]` rows of each window and forget the rest.

        Called once for each verified window, before its stream's next one is verified; not for those of a forward that
        failed, nor of one queued behind that. A stream that runs ahead commits a one-row window before it is read,
        another one after its next one was verified. 0 drops a window, maybe unread.
        """

    def release(self, stream: Stream) -> None:
        """Give the stream's lane back, whatever state it is in."""
