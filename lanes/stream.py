"""One request in the loop: what was asked, and how far it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tfjax.lanes.proposer import Proposal, Proposer

if TYPE_CHECKING:
    from tfjax.lanes.drafting import Drafting


@dataclass(frozen=True, slots=True)
class Request:
    """One reply to be generated.

    Attributes:
        id: shown in logs and errors.
        prompt: token ids, at least one.
        max_new: most tokens to emit, at least 1.
        stop_ids: tokens that end the reply (the model's EOS ids and the caller's); empty to go on past them.
        drafts: False gives the serial reference: no drafts, same tokens.
        sampling: opaque here; the backend draws by it.
        check: asked once per emitted token, in order; True ends the reply with this token. Not asked for a stop id.
        least_match: tokens of context that must repeat before what followed them is copied as drafts.
        salt: prompts share cached rows only with those of the same salt.
    """

    id: str
    prompt: tuple[int, ...]
    max_new: int
    stop_ids: frozenset[int] = frozenset()
    drafts: bool = True
    sampling: Any = None
    check: Callable[[int], bool] | None = None
    least_match: int = 6
    salt: str = ""


@dataclass(slots=True)
class Counts:
    """What a stream's verify rounds did.

    Three counts are never mixed: `drafted` rows were verified as drafts, `kept` rows were committed to the cache,
    and `Stream.emitted` tokens were given to the user.

    Attributes:
        rounds: verify forwards that the stream had rows in (the prompt's forwards are none).
        drafted: draft rows verified.
        kept: rows committed.
        accepted: drafts that were emitted.
        drafted_rounds: rounds with at least one draft.
        min_rows: rows of the narrowest window, 0 before any.
        stood_aside_rounds: rounds that passed while drafting stood aside because it did not pay.
        probes: times that drafting was tried again meanwhile.
        drafted_windows: how many of the rounds with drafts had so many of them, as far as any had.
        accepted_windows: how many of these rounds emitted so many drafts, from 0 on.
    """

    rounds: int = 0
    drafted: int = 0
    kept: int = 0
    accepted: int = 0
    drafted_rounds: int = 0
    min_rows: int = 0
    stood_aside_rounds: int = 0
    probes: int = 0
    drafted_windows: list[int] = field(default_factory=list)
    accepted_windows: list[int] = field(default_factory=list)

    @property
    def drafted_per_position(self) -> list[int]:
        """The drafts verified, by place in the window, first draft first."""
        return _at_least(self.drafted_windows)

    @property
    def accepted_per_position(self) -> list[int]:
        """The same of those that were emitted."""
        return _at_least(self.accepted_windows)

    def add_round(self, drafted: int, accepted: int, kept: int, rows: int) -> None:
        self.rounds += 1
        self.kept += kept
        if rows < self.min_rows or not self.min_rows:
            self.min_rows = rows
        if drafted:
            self.drafted_rounds += 1
            self.drafted += drafted
            self.accepted += accepted
            _count(self.drafted_windows, drafted)
            _count(self.accepted_windows, accepted)


def _count(windows: list[int], drafts: int) -> None:
    """Count a window with so many drafts."""
    if drafts >= len(windows):
        windows += [0] * (drafts + 1 - len(windows))
    windows[drafts] += 1


def _at_least(windows: list[int]) -> list[int]:
    """How many windows have at least one draft, two and so on."""
    return list(accumulate(reversed(windows[1:])))[::-1]


@dataclass(slots=True)
class Times:
    """When things happened to a stream, in the loop's clock (seconds); None before they do."""

    admitted_s: float
    started_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None


@dataclass(slots=True, eq=False)
class Stream:
    """One live request.

    Between rounds a decoding stream has `cache_length == len(context) - 1`: its last token is pending, that is, drawn
    and sent but not yet in the cache.

    Attributes:
        limit: most tokens of context: the prompt and the longest reply that max_new and the server's context allow.
        context: prompt and emitted tokens.
        cache_length: tokens of context whose rows are committed.
        reused: tokens of the prompt whose rows were cached when it started.
        block_names: of the whole blocks of context, from the first on, as far as the prefix cache asked for them.
        lane: the backend's slot, -1 before it has one.
        pages: cache pages held, in order of position.
        forced: tokens that must be emitted next, whatever the target draws.
        proposer: where its drafts on the host come from; None for a stream without drafts.
        offer: what the proposer offers for the next window; None before it was asked.
        drafting: how it stands with the drafter; None where there is none, or without drafts.
        unread: rows of its window in flight, while the round behind that is planned; 0 otherwise.
        paused: waits for pages; its state is kept.
        skipped: prefill turns in a row that went to another prompt.
        last_round: the last shared round that served it.
        cancelled: may be set from any thread; the stream ends before its next round.
        reason: stop, length, cancelled or error once it is over.
        error: what went wrong, with reason error.
    """

    request: Request
    limit: int
    times: Times
    context: list[int] = field(init=False)
    cache_length: int = 0
    reused: int = 0
    block_names: list[bytes] = field(default_factory=list)
    lane: int = -1
    pages: list[int] = field(default_factory=list)
    forced: deque[int] = field(default_factory=deque)
    proposer: Proposer | None = None
    offer: Proposal | None = None
    drafting: Drafting | None = None
    unread: int = 0
    paused: bool = False
    skipped: int = 0
    last_round: int = 0
    cancelled: bool = False
    reason: str | None = None
    error: str | None = None
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self.context = list(self.request.prompt)

    @property
    def emitted(self) -> int:
        return len(self.context) - len(self.request.prompt)

    @property
    def decoding(self) -> bool:
        """Whether the prompt is in the cache and the first token was drawn."""
        return len(self.context) > len(self.request.prompt)

    @property
    def left(self) -> int:
        """Tokens that may still be emitted."""
        return self.limit - len(self.context)

    @property
    def room(self) -> int:
        """Most drafts that the next window can use: the last token of a reply is always the target's own draw."""
        return self.left - 1
