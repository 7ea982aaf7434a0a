"""The promise as a matrix on real weights: one reply per prompt and sampling, compared over all the ways to make it.

Used by the tests with few tokens and by `make soak` with many. Only tokens of rounds that verified at least one draft
count.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from benchmarks.drafters import KnowingProposer, Watched
from benchmarks.replies import Made, make
from benchmarks.suite import Prompt
from tfjax.engine.api import Finished, Generation, Sampling, Ticket, Tokens
from tfjax.engine.engine import Engine, Served
from tfjax.engine.target import TargetBackend
from tfjax.lanes.backend import Backend
from tfjax.lanes.copy_drafts import CopyDrafts
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.drafter import Drafter
from tfjax.lanes.proposer import Proposer
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request
from tfjax.text.chat_template import ChatTemplate
from tfjax.text.tokenizer import Tokenizer

SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "seeded": Sampling(temperature=0.8, top_p=0.95, seed=20_261_129),
}


@dataclass(frozen=True, slots=True)
class Job:
    """One reply to be made."""

    kind: str
    sampling: str
    generation: Generation

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.sampling


@dataclass(frozen=True, slots=True)
class Way:
    """One way to make the replies.

    Attributes:
        streams: replies under way at once.
        drafter: `none`, `copy`, `knowing` (right with probability 0.6) or `all` (what the server drafts with: the small
            model, the table and copies).
        chunk_rows: prompt rows a forward, None for the backend's own choice.
        cancel_neighbours: beside each reply others are started and cancelled midway.
    """

    name: str
    streams: int
    drafter: str
    chunk_rows: tuple[int, ...] | None = None
    cancel_neighbours: bool = False


WAYS = (
    Way("alone, copy drafts", 1, "copy"),
    Way("alone, 0.6 drafts", 1, "knowing"),
    Way("4 streams, no drafts", 4, "none"),
    Way("4 streams, copy drafts", 4, "copy"),
    Way("4 streams, 0.6 drafts", 4, "knowing"),
    Way("odd chunks, 0.6 drafts", 1, "knowing", (61,)),
    Way("4 streams, odd chunks, 0.6 drafts, neighbours cancelled", 4, "knowing", (37,), True),
    Way("alone, all drafters", 1, "all"),
    Way("4 streams, odd chunks, all drafters, neighbours cancelled", 4, "all", (37,), True),
)

SOAK_WAYS = (
    *WAYS,
    Way("8 streams, 0.6 drafts", 8, "knowing"),
    Way("16 streams, 0.6 drafts", 16, "knowing"),
    Way("16 streams, odd chunks, 0.6 drafts", 16, "knowing", (29,)),
    Way("8 streams, all drafters", 8, "all"),
    Way("16 streams, odd chunks, all drafters", 16, "all", (29,)),
)
"""What `make soak` adds: more streams than the tests have time for."""


@dataclass(slots=True)
class WayReport:
    """What one way gave.

    Attributes:
        drafted, kept: drafts verified and emitted, by place in the window, first draft at 0.
        shared_rounds: windows with drafts that were verified beside another stream's.
        different: the replies that were not equal to the serial reference.
    """

    way: Way
    replies: int = 0
    tokens: int = 0
    counting: int = 0
    drafted: Counter[int] = field(default_factory=Counter)
    kept: Counter[int] = field(default_factory=Counter)
    shared_rounds: int = 0
    seconds: float = 0.0
    different: list[str] = field(default_factory=list)

    @property
    def counted(self) -> int:
        """Counting tokens; none where nothing was rejected."""
        return self.counting if self.drafted.total() > self.kept.total() else 0

    def as_dict(self) -> dict[str, object]:
        depths = range(len(self.drafted))
        return {
            "way": self.way.name,
            "replies": self.replies,
            "tokens": self.tokens,
            "counting_tokens": self.counted,
            "drafted": self.drafted.total(),
            "kept_drafts": self.kept.total(),
            "kept_per_depth": [self.kept[depth] for depth in depths],
            "rejected_per_depth": [self.drafted[depth] - self.kept[depth] for depth in depths],
            "shared_rounds": self.shared_rounds,
            "seconds": round(self.seconds, 1),
            "different": self.different,
        }


@dataclass(frozen=True, slots=True)
class Parts:
    """What a matrix is made on.

    Attributes:
        drafter: the small model, if there is one.
        host_drafts: the source of copies and of the table's drafts; None leaves copies alone.
    """

    target: TargetBackend
    drafter: Drafter | None
    host_drafts: Callable[[Request], Proposer] | None
    settings: Settings
    tokenizer: Tokenizer


def make_jobs(prompts: Iterable[Prompt], tokenizer: Tokenizer, tokens: int) -> list[Job]:
    """Every prompt with every sampling; replies go on past EOS so that all are of one length."""
    template = ChatTemplate(tokenizer.chat_template or "", tokenizer.bos_token, tokenizer.eos_token)
    jobs = []
    for prompt in prompts:
        ids = tuple(tokenizer.encode(template.render(list(prompt.messages))))
        for name, sampling in SAMPLINGS.items():
            generation = Generation(f"{prompt.kind}, {name}", ids, tokens, sampling, ignore_eos=True)
            jobs.append(Job(prompt.kind, name, generation))
    return jobs


class Matrix:
    """Makes replies on one loaded model, in any way."""

    def __init__(self, opened: Parts):
        self._target = opened.target
        self._watched = Watched(opened.target)
        self._drafted = Drafted(self._watched, opened.drafter, opened.target.vocab) if opened.drafter else None
        self._opened = opened
        self._served = Served("proof", opened.tokenizer, opened.tokenizer.eos_ids)

    def serial(self, jobs: Sequence[Job]) -> dict[tuple[str, str], Made]:
        """The reference: each reply alone, without drafts."""
        with self._engine(self._watched, None, None) as engine:
            return {job.key: make(engine, [replace(job.generation, draft=False)])[0] for job in jobs}

    def run(self, way: Way, jobs: Sequence[Job], reference: dict[tuple[str, str], Made]) -> WayReport:
        """Make all replies in one way and compare their tokens with the reference."""
        report = WayReport(way)
        backend = self._drafted if way.drafter == "all" and self._drafted else self._watched
        shared_before = self._watched.shared_rounds
        started = time.perf_counter()
        with self._engine(backend, self._proposer(way, jobs, reference), way.chunk_rows) as engine:
            for first in range(0, len(jobs), way.streams):
                batch = list(jobs[first : first + way.streams])
                generations = [replace(job.generation, draft=way.drafter != "none") for job in batch]
                neighbours = _disturb(engine, generations[0]) if way.cancel_neighbours else None
                for job, made in zip(batch, make(engine, generations), strict=True):
                    _add(report, job, made, reference[job.key])
                if neighbours is not None:
                    neighbours()
        report.seconds = time.perf_counter() - started
        report.shared_rounds = self._watched.shared_rounds - shared_before
        return report

    def _proposer(
        self, way: Way, jobs: Sequence[Job], reference: dict[tuple[str, str], Made]
    ) -> Callable[[Request], Proposer] | None:
        """The source of drafts on the host; None is the product's own copies."""
        if way.drafter == "all":
            return self._opened.host_drafts
        if way.drafter != "knowing":
            return None
        known = {(job.generation.prompt, job.generation.sampling): reference[job.key].tokens for job in jobs}

        def proposer(request: Request) -> Proposer:
            reply = known.get((request.prompt, request.sampling))
            if reply is None:
                return CopyDrafts(least_match=4)
            return KnowingProposer(reply, len(request.prompt), self._target.vocab)

        return proposer

    @contextmanager
    def _engine(
        self,
        backend: Backend,
        proposer: Callable[[Request], Proposer] | None,
        chunk_rows: tuple[int, ...] | None,
    ) -> Iterator[Engine]:
        own_chunks = self._target.chunk_rows
        self._target.chunk_rows = chunk_rows or own_chunks
        engine = Engine(backend, self._opened.settings, self._served, proposer=proposer)
        try:
            yield engine
        finally:
            engine.close()
            self._target.chunk_rows = own_chunks


def _add(report: WayReport, job: Job, made: Made, wanted: Made) -> None:
    stats = made.finished.stats
    report.replies += 1
    report.tokens += stats.completion_tokens
    report.counting += made.counting
    report.drafted += Counter(dict(enumerate(stats.drafted_per_position)))
    report.kept += Counter(dict(enumerate(stats.accepted_per_position)))
    if made.tokens != wanted.tokens or stats.token_sha256 != wanted.finished.stats.token_sha256:
        place = next((i for i, (a, b) in enumerate(zip(made.tokens, wanted.tokens, strict=False)) if a != b), -1)
        report.different.append(f"{job.kind}, {job.sampling}: from token {place} of {len(made.tokens)}")


def _disturb(engine: Engine, model: Generation) -> Callable[[], None]:
    """Start a neighbour that is cancelled after its first tokens, and one that is cancelled in its prompt."""
    other = replace(model, id="neighbour", prompt=model.prompt[::-1], sampling=Sampling(temperature=1.0, seed=7))
    ticket: Ticket | None = None

    def cancel_soon(event: Tokens | Finished) -> None:
        if isinstance(event, Tokens) and ticket is not None:
            ticket.cancel()

    ticket = engine.submit(other, cancel_soon)
    in_prompt = engine.submit(replace(other, id="neighbour in its prompt", prompt=other.prompt * 2), lambda event: None)
    time.sleep(0.015)
    in_prompt.cancel()
    return ticket.cancel
