"""A forward that is queued on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfjax.engine.landing import Landed
from tfjax.kernels.draw import Drawn
from tfjax.lanes.window import Window

NO_ROWS: NDArray[np.int32] = np.zeros(0, np.int32)


@dataclass(slots=True)
class Forward:
    """A queued forward.

    Attributes:
        windows: its rows.
        logprobs: alternatives that each window's stream wants, None for no logprobs.
        drawn: its unread draws.
        token: int32 [rows], those of its windows; on the device where the host does not know them all.
        lane: int32 [rows], of its windows.
        landed: where its windows end, once that was asked for.
    """

    windows: tuple[Window, ...]
    logprobs: tuple[int | None, ...]
    drawn: Drawn
    token: Any
    lane: NDArray[np.int32]
    landed: Landed | None = None

    @property
    def is_plain(self) -> bool:
        """Whether every window has one row."""
        return all(window.rows == 1 for window in self.windows)

    @property
    def lanes(self) -> list[int]:
        return [window.stream.lane for window in self.windows]
