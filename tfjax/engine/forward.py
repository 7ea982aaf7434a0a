"""A forward that is queued on the device."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from tfjax.engine.step import Bucket
from tfjax.kernels.draw import Drawn
from tfjax.lanes.window import Window


@dataclass(slots=True)
class Forward:
    """A queued forward.

    Attributes:
        windows: its rows.
        logprobs: alternatives that each window's stream wants, None for no logprobs.
        drawn: its unread draws.
        token: int32 [rows], those of its windows.
        bucket: whose results these are; None for a prompt's, which nobody gives back.
    """

    windows: tuple[Window, ...]
    logprobs: tuple[int | None, ...]
    drawn: Drawn
    token: jax.Array
    bucket: Bucket | None = None

    @property
    def lanes(self) -> list[int]:
        return [window.stream.lane for window in self.windows]

    @property
    def has_held(self) -> bool:
        """Whether there are drafts that the host has not seen."""
        return any(window.held for window in self.windows)

    @property
    def read_back(self) -> list[jax.Array]:
        """What the host will read."""
        drawn = self.drawn
        logprobs = (
            [drawn.logprob, drawn.top_token, drawn.top_logprob] if any(w is not None for w in self.logprobs) else []
        )
        return [drawn.token, *([self.token] if self.has_held else []), *logprobs]
