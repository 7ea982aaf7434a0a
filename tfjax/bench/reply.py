"""One streamed reply as the client saw it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Arrival:
    """Some text that came: when, and how many characters."""

    at_s: float
    chars: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply. Times are in seconds of one clock.

    Attributes:
        sent_s, ended_s: when the request was sent, and when the last text came.
        arrivals: the pieces of text, none empty.
        tokens: that the server says it generated; where it does not say, the pieces are counted.
        block: what only tfjax sends (the `tfjax` block); empty elsewhere.
    """

    sent_s: float
    ended_s: float
    arrivals: tuple[Arrival, ...]
    text: str
    tokens: int
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    block: Mapping[str, Any] = field(default_factory=dict)

    @property
    def token_sha256(self) -> str | None:
        value = self.block.get("token_sha256")
        return value if isinstance(value, str) and value else None

    @property
    def ttft_ms(self) -> float:
        """From the request to the first text."""
        first_s = self.arrivals[0].at_s if self.arrivals else self.ended_s
        return 1000 * (first_s - self.sent_s)


def same_tokens(one: Reply, other: Reply) -> bool | None:
    """Whether two replies have the same token hash; None, never true, where one has no hash."""
    if one.token_sha256 is None or other.token_sha256 is None:
        return None
    return one.token_sha256 == other.token_sha256


def all_same(found: Iterable[bool | None]) -> bool | None:
    """False where one is false, else None where one is unknown or there are none, else true."""
    answers = list(found)
    if False in answers:
        return False
    return None if None in answers or not answers else True


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """What became of drafts in some replies.

    Attributes:
        counting: tokens of rounds that verified at least one draft; None where a server does not tell.
        drafted_by_depth, kept_by_depth: first draft of a window first; empty where a server does not tell.
    """

    drafted: int
    kept: int
    counting: int | None
    drafted_by_depth: tuple[int, ...]
    kept_by_depth: tuple[int, ...]

    @property
    def rejected(self) -> int:
        """Drafts that were verified and not emitted."""
        return self.drafted - self.kept

    @property
    def rejected_by_depth(self) -> tuple[int, ...]:
        kept = (*self.kept_by_depth, *[0] * len(self.drafted_by_depth))
        return tuple(drafted - kept[depth] for depth, drafted in enumerate(self.drafted_by_depth))

    @property
    def proves(self) -> int | None:
        """Counting tokens; none where nothing was drafted or nothing was rejected, since that proves little."""
        return self.counting if self.drafted and self.rejected else 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "drafted": self.drafted,
            "kept": self.kept,
            "rejected": self.rejected,
            "drafted_by_depth": list(self.drafted_by_depth),
            "kept_by_depth": list(self.kept_by_depth),
            "rejected_by_depth": list(self.rejected_by_depth),
            "counting_tokens": self.proves,
        }


def draft_counts(replies: Sequence[Reply]) -> DraftCounts:
    """Adds up what the replies' blocks say."""
    counting = [_counting(reply) for reply in replies]
    return DraftCounts(
        sum(_number(reply, "drafted") for reply in replies),
        sum(_number(reply, "accepted") for reply in replies),
        None if None in counting else sum(count for count in counting if count is not None),
        _by_depth(replies, "drafted_per_position"),
        _by_depth(replies, "accepted_per_position"),
    )


def _counting(reply: Reply) -> int | None:
    if "drafted_rounds" not in reply.block:
        return None
    return min(reply.tokens, _number(reply, "drafted_rounds") + _number(reply, "accepted"))


def _number(reply: Reply, key: str) -> int:
    value = reply.block.get(key)
    return value if isinstance(value, int) else 0


def _by_depth(replies: Sequence[Reply], key: str) -> tuple[int, ...]:
    rows = [reply.block.get(key) or () for reply in replies]
    totals = [0] * max(map(len, rows), default=0)
    for row in rows:
        for depth, count in enumerate(row):
            totals[depth] += count
    return tuple(totals)
