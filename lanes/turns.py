"""Whose turn it is: in a shared round, and among the prompts being filled."""

from __future__ import annotations

from collections.abc import Sequence

from tfjax.lanes.stream import Stream

MOST_SKIPS = 8


def take_turns(live: Sequence[Stream], most_streams: int, most_rows: int) -> list[Stream]:
    """Streams of the next round, in the order given: the least recently served, as many as fit, always at least one.

    A stream counts with its fixed rows: the pending token's and the forced ones.
    """
    if len(live) <= most_streams and len(live) + sum([len(stream.forced) for stream in live]) <= most_rows:
        return list(live)
    taken: set[Stream] = set()
    rows = 0
    for stream in sorted(live, key=lambda stream: stream.last_round):
        rows += 1 + len(stream.forced)
        if taken and (len(taken) == most_streams or rows > most_rows):
            break
        taken.add(stream)
    return [stream for stream in live if stream in taken]


def next_prompt(filling: Sequence[Stream]) -> Stream:
    """The prompt that gets the next chunk: the one with the fewest tokens left, or one that was skipped too often."""
    chosen = min(filling, key=lambda stream: len(stream.request.prompt) - stream.cache_length)
    most_skipped = max(filling, key=lambda stream: stream.skipped)
    if most_skipped.skipped >= MOST_SKIPS:
        chosen = most_skipped
    for stream in filling:
        stream.skipped += 1
    chosen.skipped = 0
    return chosen
