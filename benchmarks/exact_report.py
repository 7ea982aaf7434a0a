"""What a proof of equal tokens counts: replies made in one way against their references, and the time they may take."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.replies import Made


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to make replies.

    Attributes:
        streams: replies under way at once.
        seconds: the share of the time that it may take, in proportion to the others'.
        jobs: most different replies.
        copies: times that each reply is made, every time beside others.
        plain_every: each so many-th reply is made without drafts; 0 for none.
        cancels: beside the replies others are started and cancelled, so that lanes are replaced.
        priced: whether prices decide what is drafted; else every stream follows its own rule, and none stands aside.
        turns: of a conversation; the second one extends prompt and reply of the first, which are kept.
    """

    name: str
    streams: int
    seconds: float
    jobs: int = 24
    copies: int = 1
    plain_every: int = 0
    cancels: bool = False
    priced: bool = True
    turns: int = 1


@dataclass(slots=True)
class ArmReport:
    """What one arm gave.

    Attributes:
        counting: tokens of rounds that verified drafts.
        cached: prompt tokens that were taken from the prefix cache.
        drafted, kept: drafts verified and emitted, by place in the window, first draft at 0.
        left_out: replies that there was no time for.
        stopped: a repeated arm ended for want of time, before enough tokens counted.
        different: the replies that were not equal to their reference.
    """

    variant: str
    arm: str
    streams: int
    replies: int = 0
    tokens: int = 0
    counting: int = 0
    cached: int = 0
    drafted: Counter[int] = field(default_factory=Counter)
    kept: Counter[int] = field(default_factory=Counter)
    left_out: int = 0
    stopped: bool = False
    seconds: float = 0.0
    different: list[str] = field(default_factory=list)

    @property
    def counted(self) -> int:
        """Counting tokens; none where nothing was drafted or nothing rejected."""
        return self.counting if self.drafted.total() > self.kept.total() else 0

    @property
    def shortened(self) -> str:
        """What of the arm there was no time for; empty for nothing."""
        missing = f"{self.left_out} replies" if self.left_out else "more repeats" if self.stopped else ""
        return f"{self.variant}, {self.arm}: {missing}" if missing else ""

    def add(self, name: str, made: Made, wanted: Made) -> None:
        """Compare a reply with its reference: tokens, their hash and why it ended."""
        stats = made.finished.stats
        self.replies += 1
        self.tokens += stats.completion_tokens
        self.counting += made.counting
        self.cached += stats.cached_tokens
        self.drafted += Counter(dict(enumerate(stats.drafted_per_position)))
        self.kept += Counter(dict(enumerate(stats.accepted_per_position)))
        difference = first_difference(made, wanted)
        if difference is not None:
            self.different.append(f"{name}: {difference}")

    def as_dict(self) -> dict[str, Any]:
        depths = range(len(self.drafted))
        return {
            "variant": self.variant,
            "arm": self.arm,
            "streams": self.streams,
            "replies": self.replies,
            "tokens": self.tokens,
            "counting_tokens": self.counted,
            "cached_tokens": self.cached,
            "drafted": self.drafted.total(),
            "kept_per_depth": [self.kept[depth] for depth in depths],
            "rejected_per_depth": [self.drafted[depth] - self.kept[depth] for depth in depths],
            "left_out_replies": self.left_out,
            "seconds": round(self.seconds, 1),
            "different": self.different,
        }

    def line(self) -> str:
        drafted, kept = self.drafted.total(), self.kept.total()
        missing = f"{self.left_out} left out" if self.left_out else "stopped" if self.stopped else ""
        left = f", {missing} for want of time" if missing else ""
        return (
            f"{self.variant:28s} {self.arm:32s} {self.replies:7d} {self.tokens:7d} {self.counted:8d} {drafted:7d} "
            f"{kept:7d} {drafted - kept:8d} {self.cached:7d} {len(self.different):9d} {self.seconds:6.1f}{left}"
        )


HEADER = f"{'variant':28s} {'arm':32s} replies  tokens counting drafted    kept rejected  cached different      s"


def first_difference(made: Made, wanted: Made) -> str | None:
    """Where and how a reply is not its reference; None where it is."""
    own, other = made.finished, wanted.finished
    if made.tokens != wanted.tokens:
        pairs = enumerate(zip(made.tokens, wanted.tokens, strict=False))
        place = next((i for i, (a, b) in pairs if a != b), min(len(made.tokens), len(wanted.tokens)))
        return f"from token {place} of {len(made.tokens)}, reference {len(wanted.tokens)}"
    if own.stats.token_sha256 != other.stats.token_sha256:
        return "equal tokens, another hash"
    if own.reason != other.reason:
        return f"ended by {own.reason}, reference by {other.reason}"
    return None


class Budget:
    """Shares the time that is left among the steps that are left, in proportion to what each is expected to take."""

    def __init__(self, seconds: float, expected_s: Sequence[float], clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._end = clock() + seconds
        self._expected = list(expected_s)
        self._step_end = clock()
        self._rates: dict[int, float] = {}

    @property
    def left_s(self) -> float:
        """Of all steps."""
        return self._end - self._clock()

    def begin(self) -> None:
        """Start the next step."""
        share = self._expected[0] / sum(self._expected) if self._expected else 1.0
        self._expected = self._expected[1:]
        self._step_end = self._clock() + max(0.0, self.left_s) * share

    @property
    def steps(self) -> int:
        """Those that did not begin yet."""
        return len(self._expected)

    def skip_to(self, steps: int) -> None:
        """Leave out the next steps until so many are left."""
        self._expected = self._expected[len(self._expected) - steps :]

    def observe(self, streams: int, tokens: int, seconds: float) -> None:
        """Learn how fast so many streams are."""
        if tokens and seconds > 0:
            self._rates[streams] = tokens / seconds

    def fitting(self, streams: int, tokens: int, most: int) -> int:
        """How many replies of so many tokens fit in what is left of this step; before any was timed, one."""
        known = [count for count in self._rates if count <= streams] or list(self._rates)
        if not known:
            return min(1, most)
        left_s = self._step_end - self._clock()
        rate = self._rates[max(known)]
        return max(0, min(most, int(left_s * rate / tokens)))
