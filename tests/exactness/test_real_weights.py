"""Drafted, alone, beside others, chunked, after cancelled neighbours: on the real weights every token is the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from benchmarks.exactness import WAYS, Job, Made, Way, WayReport, make_jobs
from benchmarks.real_model import Opened
from benchmarks.suite import load_suite
from tfjax.engine.rows_buffer import RowsBuffer
from tfjax.engine.target import TargetBackend
from tfjax.lanes.window import Window

pytestmark = [pytest.mark.weights, pytest.mark.timeout(1200)]

TOKENS = 150
LEAST_COUNTING = 8000


@dataclass(slots=True)
class Proof:
    """The serial reference and what has been compared with it."""

    jobs: list[Job]
    reference: dict[tuple[str, str], Made]
    reports: list[WayReport] = field(default_factory=list)


@pytest.fixture(scope="module")
def proof(opened: Opened) -> Proof:
    short = [prompt for prompt in load_suite("kinds") if prompt.kind != "long"]
    jobs = make_jobs(short, opened.tokenizer, TOKENS)
    return Proof(jobs, opened.matrix.serial(jobs))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_every_way_gives_the_serial_tokens(opened: Opened, proof: Proof, way: Way) -> None:
    report = opened.matrix.run(way, proof.jobs, proof.reference)
    proof.reports.append(report)
    assert report.different == []
    assert report.tokens == TOKENS * len(proof.jobs)
    assert (report.drafted.total() > 0) == (way.drafter != "none")


def test_enough_tokens_counted(proof: Proof) -> None:
    """Only rounds with drafts count, and only in ways that also saw drafts rejected."""
    if len(proof.reports) < len(WAYS):
        pytest.skip("only part of the ways ran")
    counting = sum(report.counted for report in proof.reports)
    print(f"{counting} counting tokens compared")
    assert counting >= LEAST_COUNTING


def test_replies_differ_by_prompt_and_sampling(proof: Proof) -> None:
    """Guards the proof itself: equal replies everywhere would prove nothing."""
    assert len({made.tokens for made in proof.reference.values()}) == len(proof.jobs)


def test_a_row_at_a_wrong_position_is_seen(opened: Opened, proof: Proof, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: the last draft row of each window is computed one position too far."""
    run = TargetBackend._run

    def misplaced(self: TargetBackend, bucket: object, token: object, buffer: RowsBuffer) -> object:
        used = np.flatnonzero(buffer["lane"] != self.memory.lanes)
        if 1 < len(used) < 32:
            buffer["position"][used[-1]] += 1
        return run(self, bucket, token, buffer)  # type: ignore[arg-type]

    monkeypatch.setattr(TargetBackend, "_run", misplaced)
    way = next(way for way in WAYS if way.drafter == "knowing")
    assert opened.matrix.run(way, proof.jobs[:4], proof.reference).different


def test_a_kept_rejected_row_is_seen(opened: Opened, proof: Proof, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: one draft more than agreed with the target's draws is emitted."""

    def one_too_many(window: Window, draws: list[int], held: Sequence[int] = ()) -> list[int]:
        drafts, agreed = window.drafts or held, 0
        while agreed < len(drafts) and drafts[agreed] == draws[agreed]:
            agreed += 1
        return [*drafts[: agreed + 1], draws[min(agreed + 1, len(draws) - 1)]]

    monkeypatch.setattr("tfjax.lanes.outcome.accept", one_too_many)
    way = next(way for way in WAYS if way.drafter == "knowing")
    assert opened.matrix.run(way, proof.jobs[:4], proof.reference).different
