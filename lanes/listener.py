"""Whom the loop tells what streams emit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tfjax.lanes.stream import Stream


class Listener(Protocol):
    """Called from the thread that calls `Lanes.round`; must not block."""

    def on_tokens(self, stream: Stream, tokens: Sequence[int], logprobs: Sequence[Any] | None) -> None:
        """Take the tokens of one round. If this raises, the stream ends with an error."""

    def on_finish(self, stream: Stream) -> None:
        """The stream is over, its lane is free, and `stream.reason` says why. Called once for every admitted stream."""
