"""How many of a round's tokens the user gets. No other place decides that."""

from __future__ import annotations

from collections.abc import Sequence

from tfjax.lanes.stream import Stream


def cut(stream: Stream, tokens: Sequence[int]) -> tuple[int, str | None]:
    """How many of `tokens` are emitted and kept, and why the reply ends there (None: it goes on).

    The earliest of stop id, host check and length cuts; at one token they rank in this order.
    """
    left, stop_ids, check = stream.left, stream.request.stop_ids, stream.request.check
    if check is None and left > len(tokens) and stop_ids.isdisjoint(tokens):
        return len(tokens), None
    for count, token in enumerate(tokens, start=1):
        if token in stop_ids:
            return count, "stop"
        if check is not None and check(token):
            return count, "stop"
        if count == left:
            return count, "length"
    return len(tokens), None
