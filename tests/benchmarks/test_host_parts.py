"""The parts of a round add up to it, and programs that compute nothing serve as the real ones do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks import host_parts
from benchmarks.host_parts import Parts, gaps_of, parts_of, serve
from benchmarks.instant_pair import DEPTH, instant_engine

TOKENS = 40 * (DEPTH + 1)


def test_a_part_is_told_without_those_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(host_parts.time, "perf_counter", lambda: now[0])
    parts = Parts()

    def spend(seconds: float) -> None:
        now[0] += seconds

    inner = parts.timed("inner", spend)

    def act() -> str:
        spend(1.0)
        inner(2.0)
        inner(3.0)
        return "done"

    assert parts.timed("outer", act)() == "done"
    assert parts.seconds == {"inner": 5.0, "outer": 1.0}


def test_rounds_at_both_ends_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_parts, "SKIPPED", 1)
    parts = Parts()
    for seconds in (9.0, 1.0, 2.0, 3.0, 9.0):
        parts.seconds = {"part": seconds}
        parts.end_round()
    assert parts.medians_us() == {"part": 2e6}


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Any, Any, Any]]:
    made = instant_engine("modules", 2, held=True)
    yield made
    made[2].close()


def test_every_draft_lands_and_every_part_is_seen(pair: tuple[Any, Any, Any]) -> None:
    target, drafter, engine = pair
    programs = dict(target.step._compiled)
    with gaps_of(target, drafter) as gaps, parts_of(engine, target, drafter) as parts:
        times, tokens = serve(engine, 1, TOKENS, draft=True, parts=parts)
    assert tokens == DEPTH + 1
    assert len(gaps) >= len(times) > 0
    assert all(0 < gap < 1 for gap in gaps), "a gap begins with the results of a round"
    hosts = {name: host for name, (_, host) in parts.calls.items()}
    assert hosts == {"prompt": 2, "verify": 2, "absorb": 0, "hold": 1}, "tokens and rows, and what a hold is told"
    assert {"read", "accept", "ask", "lay out", "lay out the hold", "events", "call hold"} <= parts.medians_us().keys()
    assert target.step._compiled == programs


def test_a_plain_reply_has_no_drafts(pair: tuple[Any, Any, Any]) -> None:
    target, drafter, engine = pair
    with gaps_of(target, drafter) as gaps:
        _, tokens = serve(engine, 2, 40, draft=False)
    assert (tokens, gaps) == (1, [])
