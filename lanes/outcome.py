"""What became of one window: what its stream emits, and whether the reply ends."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfjax.lanes.accept import accept
from tfjax.lanes.cuts import cut
from tfjax.lanes.window import Result, Window

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outcome:
    """A judged window. Not frozen, which would double the time to make one, and every window of every round has one.

    Attributes:
        window: the rows that were verified.
        tokens: what is emitted; as many of the window's rows are kept.
        accepted: how many of them were drafts (forced tokens are none).
        logprobs: one entry per token when the stream asked for them.
        reason: why the reply ends with these tokens; None where it goes on.
        error: what went wrong, with reason error.
    """

    window: Window
    tokens: Sequence[int] = ()
    accepted: int = 0
    logprobs: Sequence[Any] | None = None
    reason: str | None = None
    error: str | None = None

    @property
    def kept(self) -> int:
        return len(self.tokens)

    def advance(self) -> None:
        """Add the tokens to the stream's context, and the kept rows to what its cache holds; forced tokens are done."""
        stream = self.window.stream
        if stream.forced:
            for _ in range(min(len(stream.forced), self.kept)):
                stream.forced.popleft()
        stream.context.extend(self.tokens)
        stream.cache_length = self.window.position + len(self.tokens)


def judge(window: Window, result: Result) -> Outcome:
    """Accept, then cut. A stream whose own check or numbers fail ends alone, with nothing of this round."""
    stream = window.stream
    if stream.cancelled:
        return Outcome(window, reason="cancelled")
    if result.error is not None:
        return Outcome(window, reason="error", error=result.error)
    try:
        tokens = accept(window, result.draws, result.drafts if window.held else ())
        count, reason = cut(stream, tokens)
    except Exception as error:
        log.exception("a stream's own check failed")
        return Outcome(window, reason="error", error=describe(error))
    logprobs = None if result.logprobs is None else result.logprobs[:count]
    accepted = max(0, min(count, len(tokens) - 1) - window.forced)
    return Outcome(window, tokens[:count], accepted, logprobs, reason)


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
