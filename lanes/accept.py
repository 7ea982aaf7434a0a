"""The accept rule."""

from __future__ import annotations

from collections.abc import Sequence

from tfjax.lanes.window import Window


def accept(window: Window, draws: Sequence[int], held: Sequence[int] = ()) -> list[int]:
    """The tokens that a window yields: its drafts while each is the target's own draw there, then the next draw.

    Forced rows count as matching whatever was drawn, and a forced token that had no row takes the place of the draw. As
    many rows of the window are kept as tokens are returned: the pending token's row and those of the matching drafts.

    `held` are the drafts of a window that left them with the drafter, which came back with the draws.
    """
    forced = window.stream.forced
    if len(forced) > window.forced:
        return [*window.drafts[: window.forced], forced[window.forced]]
    drafts, landed = window.drafts or held, window.forced
    while landed < len(drafts) and drafts[landed] == draws[landed]:
        landed += 1
    return [*drafts[:landed], draws[landed]]
