"""Standing aside as a whole loop sees it: a stream leaves its drafter alone, and comes back when that pays again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.lanes.drafted_harness import DraftedRun, settings
from tests.stubs import hashed
from tfjax.lanes.copy_drafts import copies_for
from tfjax.lanes.stream import Request

WINDOW_MS = {2: 23.0, 4: 26.0, 8: 31.0, 16: 44.0, 32: 65.0}
GRID_MS = {1: {1: 2.5, 8: 10.9}, 8: {1: 4.6, 8: 13.0}}
KINDS: dict[str, dict[str, Any]] = {"priced": {"hold_ms": GRID_MS}, "own depths": {"step_ms": 1.2}}
HOST_MS = 0.25


def hold_ms(streams: int, depth: int) -> float:
    return 1.0 + 1.2 * depth + 0.3 * streams


def run_text(
    kind: str, tokens: int, lands: Any, company: int = 1, drafts: bool = True, proposer: Any = None, **more: Any
) -> DraftedRun:
    """Replies of so many tokens, in which drafts land where `lands(position)` says."""
    target = {"widths": tuple(WINDOW_MS), "window_ms": WINDOW_MS, "logprobs": False}
    options = {"target": target, "takes_ms": hold_ms, "lands": lambda stream, position: lands(position), **KINDS[kind]}
    numbers = settings(context=2000, pages=8 * 500, run_ahead=more.pop("run_ahead", True))
    parts = {} if proposer is None else {"proposer": proposer}
    run = DraftedRun(numbers, "by_place", **parts, **{**options, **more})
    asks = [
        Request(f"r{number}", (1, 2, number), tokens, drafts=drafts, sampling=short_sighted(number))
        for number in range(company)
    ]
    run.admit(*asks)
    while True:
        run.clock.advance_ms(HOST_MS)
        if not run.lanes.round():
            break
    run.check_no_leak()
    run.check_tokens(*asks)
    return run


def short_sighted(seed: int) -> Any:
    """A hashed script that looks at the last token and its place: long replies stay cheap to test."""
    fresh = hashed(seed)
    return lambda context, prompt: fresh((len(context), context[-1]), prompt)


def drafted_places(run: DraftedRun, name: str = "r0") -> list[int]:
    return [position for who, position, _ in run.backend.draft_windows if who == name]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("company", [1, 2])
def test_driven_aside_and_back(kind: str, company: int) -> None:
    """Drafts never land up to place 300, from there on always."""
    run = run_text(kind, 900, lambda position: position >= 300, company)
    counts, places = run.streams["r0"].counts, drafted_places(run)
    silence = [place for place in places if 40 < place < 300]
    assert 0 < len(silence) <= 3, "probes only"
    assert 150 < counts.stood_aside_rounds <= 600
    assert 1 <= counts.probes <= 5
    back = next(place for place in places if place >= 300)
    assert back <= 300 + 260, "the gap was 256 by then"
    after = [place for place in places if place > back]
    assert len(after) >= (900 - back) / 9
    assert counts.accepted >= 0.6 * (900 - back)


@pytest.mark.parametrize("kind", KINDS)
def test_unpredictable_text_stays_aside_with_probes_further_and_further_apart(kind: str) -> None:
    run = run_text(kind, 1500, lambda position: False)
    counts, places = run.streams["r0"].counts, drafted_places(run)
    probes = [place for place in places if place > 60]
    gaps = [after - before for before, after in pairwise(probes)]
    assert [round(gap / 64) for gap in gaps] == [2, 4, 8]
    assert counts.probes == len(probes) == 4
    assert counts.stood_aside_rounds >= 1400


@pytest.mark.parametrize("kind", KINDS)
def test_predictable_text_never_stands_aside(kind: str) -> None:
    counts = run_text(kind, 400, lambda position: True).streams["r0"].counts
    assert (counts.stood_aside_rounds, counts.probes) == (0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_lone_stream_that_stands_aside_runs_ahead(kind: str) -> None:
    """From its first silence to its first probe it waits for the host no more often than a stream without drafts."""
    run = run_text(kind, 70, lambda position: False)
    pendings = [windows[0].pending for windows in run.backend.forwards]
    first_silence = max(place for place, windows in enumerate(run.backend.forwards) if windows[0].drafts) + 1
    silence = pendings[first_silence + 1 :]
    assert len(silence) > 30
    assert all(pending is None for pending in silence)
    plain = run_text(kind, 70, lambda position: False, drafts=False)
    assert all(windows[0].pending is None for windows in plain.backend.forwards[1:])


@pytest.mark.parametrize("kind", KINDS)
def test_running_ahead_changes_no_round_of_it(kind: str) -> None:
    """The same windows and probes with and without running ahead, as long as times do not differ."""
    found = [
        run_text(kind, 700, lambda position: position >= 400, run_ahead=ahead, takes_ms=lambda streams, depth: 0.0)
        for ahead in (True, False)
    ]
    assert found[0].streams["r0"].counts.probes > 0
    assert found[0].streams["r0"].counts.stood_aside_rounds == found[1].streams["r0"].counts.stood_aside_rounds
    assert drafted_places(found[0]) == drafted_places(found[1])


# The two scenarios of a probe that goes wrong.


@pytest.mark.parametrize("kind", KINDS)
def test_a_probe_survives_a_round_that_was_planned_before_it(kind: str) -> None:
    """A round without drafts comes between the probe's asks and its verification: the probe stays armed for the next.

    The pending token's window is cut to itself once, as when its pages went to an older stream.
    """
    run = run_text_until_armed(kind)
    stream, stand = run.streams["r0"], run.streams["r0"].drafting.stand  # type: ignore[union-attr]
    gap = stand.gap
    cut_next_window(run, rounds=1)
    run.lanes.round()
    assert stand.probing, "one plain round takes nothing from it"
    before = stream.counts.drafted
    run.lanes.round()
    assert stream.counts.drafted > before
    assert (stand.probing, stand.gap, stand.probes, stand.aside_rounds) == (False, 2 * gap, 1, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_probe_whose_drafts_are_cut_twice_is_given_up(kind: str) -> None:
    run = run_text_until_armed(kind)
    stream, stand = run.streams["r0"], run.streams["r0"].drafting.stand  # type: ignore[union-attr]
    gap, drafted = stand.gap, stream.counts.drafted
    cut_next_window(run, rounds=2)
    run.lanes.round()
    run.lanes.round()
    assert (stand.probing, stand.gap, stand.probes, stand.aside_rounds) == (False, 2 * gap, 1, 0)
    for _ in range(20):
        run.lanes.round()
    assert stream.counts.drafted == drafted, "it waits anew"
    assert stream.counts.probes == 1


def run_text_until_armed(kind: str) -> DraftedRun:
    """A lone stream of unpredictable text, up to the round before which its first probe was asked for."""
    target = {"widths": tuple(WINDOW_MS), "window_ms": WINDOW_MS, "logprobs": False}
    run = DraftedRun(settings(context=600), "wrong", target=target, takes_ms=hold_ms, **KINDS[kind])
    run.admit(Request("r0", (1, 2, 3), 500, sampling=short_sighted(0)))
    run.lanes.round()
    stand = run.streams["r0"].drafting.stand  # type: ignore[union-attr]
    for _ in range(200):
        if stand.probing:
            return run
        run.lanes.round()
    raise AssertionError("no probe was armed")


def cut_next_window(run: DraftedRun, rounds: int) -> None:
    """The planner grants nothing for some rounds, as when a plan that goes first takes the rows."""
    planner, left = run.lanes._planner, [rounds]
    share = planner._share

    def cut(chances: Any, fixed_rows: int, drafted: bool) -> list[int]:
        left[0] -= 1
        return [0] * len(chances) if left[0] >= 0 else share(chances, fixed_rows, drafted)

    planner._share = cut  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_that_goes_first_takes_a_probe_for_none(kind: str) -> None:
    """Where copies take the place of every draft, a stream that stands aside neither drafts nor gets stuck."""
    script = lambda context, prompt: len(context) % 11 if len(context) > 150 else hash(tuple(context)) % 49  # noqa: E731
    target = {"widths": tuple(WINDOW_MS), "window_ms": WINDOW_MS, "logprobs": False}
    proposer = lambda request: copies_for(1, 16, request)  # noqa: E731
    run = DraftedRun(settings(context=600), "wrong", proposer, target=target, takes_ms=hold_ms, **KINDS[kind])
    ask = Request("r0", (1, 2, 3), 500, sampling=script, least_match=4)
    run.admit(ask)
    run.finish()
    run.check_tokens(ask)
    assert run.streams["r0"].counts.accepted > 250
