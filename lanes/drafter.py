"""What guesses tokens for many streams in one dispatch: a smaller model on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tfjax.lanes.stream import Stream
from tfjax.lanes.window import Window


@dataclass(slots=True)
class Ask:
    """Drafts wanted.

    Attributes:
        stream: whose; its context ends with the pending token, after which the drafts come.
        depth: how many, from 1 to the drafter's depth.
        unread: rows of the stream's window in flight, 0 without one. Its drafts then come after what that window keeps,
            one token at least; the context ends before it.
    """

    stream: Stream
    depth: int
    unread: int = 0


@dataclass(slots=True)
class Guess:
    """What an ask got. Not frozen, for speed; nobody changes one.

    Attributes:
        tokens: the drafts; fewer than asked for, or none, where it could make no more.
        confidences: for each, how likely the drafter takes it to land where all before it do; empty if it does not say.
    """

    tokens: Sequence[int]
    confidences: Sequence[float] = ()


class Drafter(Protocol):
    """Drafts for the streams that were opened; others are never shown to it.

    A call may raise; the streams that it was for then end, and the others go on.
    """

    depth: int
    """Most drafts of one hold."""

    context: int
    """Most positions, context and drafts, that it can work with."""

    hold_ms: Mapping[int, Mapping[int, float]]
    """Measured milliseconds of one hold by streams and depth, at some of each; empty until measured."""

    step_ms: float
    """Milliseconds of one draft, where holds are not measured."""

    stands_aside: bool
    """Whether a stream whose drafts do not pay stops drafting for long stretches, instead of a few rounds at a time."""

    def open(self, stream: Stream) -> None:
        """Take the stream's lane; nothing of the lane's earlier stream counts any more."""

    def absorb_prompt(self, stream: Stream, start: int, stop: int) -> None:
        """Prompt rows [start, stop) are queued on the target. Rows before the first `start` were reused."""

    def can_draft(self, stream: Stream) -> bool:
        """Whether it has what it needs to draft for the stream now; else its next window is filled with fillers."""

    def hold(self, asks: Sequence[Ask]) -> Any:
        """Queue one dispatch that drafts for all asks, without waiting. Returns a ticket for `read`.

        Windows are in flight for some of the streams only behind a target that `lands` windows.
        """

    def read(self, tickets: Sequence[Any]) -> Sequence[Sequence[Guess]]:
        """Wait for the drafts of holds, by ticket and ask, in one transfer."""

    def absorb(self, window: Window, kept: int) -> None:
        """The first `kept` rows of a verified window stay; without waiting. Called before the next hold, or after it
        where that was for drafts behind a window in flight."""

    def release(self, stream: Stream) -> None:
        """Forget the stream's lane, whatever state it is in."""
