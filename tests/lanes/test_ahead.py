"""Rounds that are queued behind one whose draws nobody has read: which are, and that nothing else changes by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.lanes.drafted_harness import FLAT_MS, GRID_MS, DraftedRun, complete, settings, silent
from tests.lanes.harness import drafter
from tests.lanes.test_oracle import counting, requests
from tests.scripted_drafter import ScriptedDrafter
from tests.stubs import VOCAB, FakeClock, hashed
from tfjax.lanes.copy_drafts import copies_for
from tfjax.lanes.stream import Request, Stream
from tfjax.lanes.window import Window

TARGET = {"window_ms": FLAT_MS, "held_on_target": True, "lands": True}
ROOMY = settings(growth_rows=260, pages=200)


def behind(run: DraftedRun) -> list[tuple[Window, ...]]:
    """Forwards that were queued before the one before was read, but for those of a lone row."""
    return [windows for windows in run.backend.forwards if windows[0].pending is None and any(w.held for w in windows)]


def waited(run: DraftedRun) -> list[tuple[Window, ...]]:
    """Forwards that were queued while none was in flight, but for the first."""
    return [windows for windows in run.backend.forwards[1:] if all(w.pending is not None for w in windows)]


def served(asks: Sequence[Request], mode: str = "perfect", numbers: Any = None, **more: Any) -> DraftedRun:
    more = {"hold_ms": GRID_MS, "target": TARGET, **more}
    return complete(asks, numbers or settings(), mode, **more)


@pytest.mark.parametrize("mode", ScriptedDrafter.MODES)
@pytest.mark.parametrize("company", [1, 2, 3, 8])
def test_replies_are_the_serial_ones_and_most_rounds_run_ahead(company: int, mode: str) -> None:
    run = served(requests(company, 150), mode)
    if mode in ("perfect", "short"):
        drafted = [windows for windows in run.backend.forwards if any(w.held for w in windows)]
        assert len(behind(run)) > (0.7 if company < 3 else 0.25) * len(drafted)
        assert counting(run) > 80 * company
    elif mode in ("mixed", "hostile"):
        assert behind(run)


def test_the_next_round_is_queued_before_this_one_is_read() -> None:
    run = DraftedRun(settings(), target=TARGET, hold_ms=GRID_MS)
    run.admit(*requests(2, 200))
    log: list[str] = []
    for owner, name in ((run.drafter, "hold"), (run.backend, "verify"), (run.backend, "read"), (run.backend, "keep")):
        real = getattr(owner, name)
        setattr(owner, name, lambda *given, real=real, name=name: (log.append(name), real(*given))[1])
    for _ in range(20):
        run.lanes.round()
    assert " hold verify read keep" * 5 in " ".join(["", *log])


def test_thousands_of_tokens_behind_unread_rounds_are_the_serial_ones() -> None:
    total = 0
    for mode in ("perfect", "mixed", "hostile", "short"):
        for first in range(0, 8, 4):
            asks = [replace(ask, id=f"{first}{ask.id}") for ask in requests(8, 150)[first:]]
            run = served(asks, mode, depth=5)
            total += sum(window.rows for windows in behind(run) for window in windows)
    assert total > 5000


WITHOUT: dict[str, dict[str, Any]] = {
    "it is switched off": {"numbers": settings(run_ahead=False)},
    "the target lands no windows": {"target": {**TARGET, "lands": False}},
    "the host reads the drafts": {"target": {**TARGET, "held_on_target": False}},
    "holds have no price": {"hold_ms": {}, "step_ms": 1.0},
    "forwards are not timed": {"target": {**TARGET, "window_ms": {}}},
    "the drafter has no place for more": {"context": 8},
    "the drafter knows too little": {"fills": lambda stream: True},
}


@pytest.mark.parametrize("why", WITHOUT)
def test_no_round_with_drafts_runs_ahead_where(why: str) -> None:
    assert not behind(served(requests(3, 60), **WITHOUT[why]))


def test_a_stream_without_drafts_keeps_nobody_waiting() -> None:
    plain, *drafted = requests(3, 150)
    run = served([replace(plain, drafts=False), *drafted], "mixed", ROOMY)
    beside = [windows for windows in behind(run) if any(not w.stream.request.drafts for w in windows)]
    assert len(beside) > 20
    assert all(window.stream.request.drafts or window.rows == 1 for windows in beside for window in windows)
    assert not waited(run), "nor do streams that join or end"


@pytest.mark.parametrize("company", [1, 2, 3])
def test_probes_of_drafts_that_never_land_keep_nobody_waiting(company: int) -> None:
    asks = [Request(f"r{n}", (n, 2), 240, sampling=hashed(n, VOCAB)) for n in range(company)]
    numbers = replace(ROOMY, context=250, pages=400)
    for hold_ms in (GRID_MS, {1: {1: 60.0, 8: 80.0}}):
        run = served(asks, "wrong", numbers, hold_ms=hold_ms)
        assert all(stream.counts.probes for stream in run.streams.values())
        assert not waited(run)


def test_the_next_round_is_queued_before_a_prompts_first_token_is_read() -> None:
    run = DraftedRun(ROOMY, target=TARGET, hold_ms=GRID_MS)
    first, second = requests(2, 90)
    run.admit(first)
    for _ in range(6):
        run.lanes.round()
    log: list[str] = []
    for name in ("prefill_step", "verify", "read", "first"):
        real = getattr(run.backend, name)
        setattr(run.backend, name, lambda *given, real=real, name=name: (log.append(name), real(*given))[1])
    run.admit(second)
    while not run.streams["r1"].decoding:
        run.lanes.round()
    assert log[-4:] == ["prefill_step", "verify", "read", "first"]
    run.finish()
    run.check_serial(first, second)


def test_a_stream_that_failed_meanwhile_draws_no_first_token() -> None:
    """Its last chunk fails: that is in the very round that would give it its first token."""
    run = DraftedRun(settings(), target={**TARGET, "fail_at": {"prefill_step": {3}}}, hold_ms=GRID_MS)
    first, second = requests(2, 90)
    run.admit(first, second)
    run.finish()
    run.check_serial(first)
    assert run.streams["r1"].reason == "error"
    assert run.backend.calls["first"] == 1


def test_none_does_while_tokens_are_forced() -> None:
    run = DraftedRun(settings(), target=TARGET, hold_ms=GRID_MS)
    (ask,) = requests(1, 60)
    run.admit(ask)
    while run.streams["r0"].emitted < 20:
        run.lanes.round()
    count = len(behind(run))
    run.streams["r0"].forced.extend([1] * 12)
    forced = []
    while run.streams["r0"].forced:
        forced.append(len(run.backend.forwards))
        run.lanes.round()
    run.finish()
    assert count
    queued_before = forced[0]
    windows = [w for windows in run.backend.forwards[queued_before : forced[-1] + 1] for w in windows]
    assert any(window.forced for window in windows)
    assert all(window.pending is not None for window in windows)


def test_none_does_where_a_copy_would_go_first() -> None:
    """Text that repeats itself is copied, however right the drafter is; the copy is found one round late at most."""
    script = lambda context, prompt: len(context) % 9  # noqa: E731
    ask = Request("r", (0, 1, 2), 120, sampling=script, least_match=4)
    run = served([ask], proposer=lambda request: copies_for(3, 16, request))
    assert sum(len(window.drafts) for windows in run.backend.forwards for window in windows) > 60


def test_pages_for_all_that_may_be_kept_are_there_before() -> None:
    """The last rows of a reply have no page to spare for a window behind one that may be kept whole."""
    for pages in (24, 28, 40):
        assert behind(served(requests(2, 40), numbers=settings(pages=pages, growth_rows=3)))


def stops_at(count: int) -> Callable[[int], bool]:
    seen: list[int] = []
    return lambda token: (seen.append(token), len(seen) >= count)[1]


@pytest.mark.parametrize("count", [1, 7, 20, 21, 22, 23])
def test_the_others_of_a_round_in_flight_go_on_when_one_ends(count: int) -> None:
    run = DraftedRun(settings(), target=TARGET, hold_ms=GRID_MS)
    asks = [Request(f"r{number}", (number, 2, 3), 90, sampling=hashed(number, VOCAB)) for number in range(3)]
    run.admit(asks[0], replace(asks[1], check=stops_at(count)), asks[2])
    run.finish()
    run.check_serial(asks[0], asks[2])
    assert run.streams["r1"].emitted == count
    alone = served([asks[1]])
    assert run.streams["r1"].context == alone.streams["r1"].context[: 3 + count]
    assert behind(run)


def test_a_round_in_flight_of_which_nobody_is_left_is_not_read() -> None:
    run = DraftedRun(settings(), target=TARGET, hold_ms=GRID_MS)
    run.admit(*requests(2, 90))
    for _ in range(10):
        run.lanes.round()
    reads = run.backend.calls["read"]
    for stream in run.streams.values():
        run.lanes.cancel(stream)
    run.finish()
    assert run.backend.calls["read"] == reads
    assert run.backend.calls["verify"] == reads + 1
    run.admit(replace(requests(1, 30)[0], id="next"))
    run.finish()
    assert run.streams["next"].reason in ("stop", "length")


def test_a_read_that_fails_ends_its_streams_and_no_later_ones(caplog: pytest.LogCaptureFixture) -> None:
    run = DraftedRun(settings(), target={**TARGET, "fail_at": {"read": {9}}}, hold_ms=GRID_MS)
    run.admit(*requests(2, 90))
    run.finish()
    assert {stream.reason for stream in run.streams.values()} == {"error"}
    assert "dropping" not in caplog.text, "the round behind is forgotten, not dropped window by window"
    late = replace(requests(1, 30)[0], id="late")
    run.admit(late)
    run.finish()
    run.check_serial(late)


@pytest.mark.parametrize("method", ["read", "keep"])
@pytest.mark.parametrize("call", range(4, 12))
@pytest.mark.parametrize("drafts", [True, False])
def test_a_stream_that_joined_behind_a_round_outlives_its_failure(method: str, call: int, drafts: bool) -> None:
    """While it joins only the other one has a window in the forward whose read, or whose commit, fails."""
    run = DraftedRun(ROOMY, target={**TARGET, "fail_at": {method: {call}}}, hold_ms=GRID_MS)
    first, second = [Request(f"r{n}", (n, 2, 3), 90, sampling=hashed(n, VOCAB)) for n in range(2)]
    second = replace(second, drafts=drafts)
    run.admit(first)
    for _ in range(6):
        run.lanes.round()
    run.admit(second)
    run.finish()
    for ask in (first, second):
        stream = run.streams[ask.id]
        if stream.reason == "error":
            assert f"{method} call {call}" in str(stream.error)
        else:
            run.check_serial(ask)
    assert run.streams["r0"].reason == "error"
    assert run.streams["r1"].reason != "error" or call > 8


def test_those_beyond_a_batch_are_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    """Two of three have a turn. When one of them ends the third fits in; its drafts wait for it already."""
    asks = [Request(f"r{n}", (n, 2, 3), (12, 90, 90)[n], sampling=hashed(n, VOCAB)) for n in range(3)]
    served(asks, "mixed", replace(ROOMY, batch_streams=2, pages=400))
    assert not caplog.records


def test_a_better_offer_of_one_that_joins_is_kept_for_it() -> None:
    """Rounds are waited for because its table is always right, so its next window has to have drafts of that."""
    table = drafter("perfect")
    run = DraftedRun(
        ROOMY,
        proposer=lambda request: table(request) if request.id == "r1" else silent(request),
        target=TARGET,
        hold_ms=GRID_MS,
        fills=lambda stream: stream.request.id == "r1",
    )
    asks = [Request(f"r{n}", (n, 2, 3), 90, sampling=hashed(n, VOCAB)) for n in range(2)]
    run.admit(asks[0])
    for _ in range(8):
        run.lanes.round()
    run.admit(asks[1])
    run.finish()
    run.check_serial(*asks)
    windows = [w for forward in run.backend.forwards for w in forward if w.stream.request.id == "r1"]
    assert windows[0].drafts


def test_a_chunk_of_a_prompt_is_no_rounds_time() -> None:
    """The chunk stands on the device between a round in flight and the one that is queued behind it."""
    seen: list[float] = []
    clock = FakeClock()
    run = DraftedRun(replace(ROOMY, context=250), target={**TARGET, "clock": clock}, hold_ms=GRID_MS, clock=clock)
    prefill, learn = run.backend.prefill_step, run.lanes._prices.observe

    def chunk(stream: Stream, start: int, stop: int) -> None:
        run.backend.queue_ms(500.0)
        prefill(stream, start, stop)

    run.backend.prefill_step = chunk  # type: ignore[method-assign]
    run.lanes._prices.observe = lambda *given, **more: (seen.append(given[2]), learn(*given, **more))[1]  # type: ignore[assignment, func-returns-value, method-assign]
    run.admit(Request("r0", (0, 2, 3), 90, sampling=hashed(0, VOCAB), drafts=False))
    for _ in range(6):
        run.lanes.round()
    run.admit(Request("r1", tuple(range(30)), 30, sampling=hashed(1, VOCAB), drafts=False))
    run.finish()
    assert len(seen) > 60
    assert max(seen) < 100


def test_a_hold_that_fails_behind_a_round_ends_its_streams_after_that_round() -> None:
    run = DraftedRun(settings(), target=TARGET, hold_ms=GRID_MS, fail_at={"hold": {9}})
    run.admit(*requests(2, 90))
    run.finish()
    for name, stream in run.streams.items():
        assert stream.reason == "error"
        assert "hold call 9" in str(stream.error), name
        assert stream.emitted > 10


def test_a_better_offer_of_the_host_is_waited_for() -> None:
    """A table that is always right, beside a drafter whose second draft is always wrong."""
    ask = Request("r", (0, 2, 3), 200, sampling=hashed(0, VOCAB))
    counts = []
    for lands in (False, True):
        run = served([ask], "mixed", k=1, proposer=drafter("perfect"), target={**TARGET, "lands": lands})
        counts.append(len(run.backend.forwards))
    assert counts[1] <= counts[0] + 2


def test_pages_that_run_out_make_nobody_stand_aside() -> None:
    """What a window in flight may keep leaves room for a draft or two, which do not pay; more will, once it is read."""
    grid = {1: {1: 12.0, 8: 14.0}, 8: {1: 14.0, 8: 18.0}}
    for growth_rows in (8, 16, 24):
        run = served(requests(2, 120), "mixed", settings(growth_rows=growth_rows), k=3, hold_ms=grid)
        assert sum(stream.counts.stood_aside_rounds for stream in run.streams.values()) < 10, growth_rows


def test_a_stream_beyond_the_drafters_context_does_not_keep_the_others_waiting() -> None:
    run = DraftedRun(
        settings(), "by_place", target=TARGET, hold_ms=GRID_MS, context=60, lands=lambda stream, at: stream.lane > 0
    )
    asks = [
        Request("far", tuple(range(40)), 200, sampling=hashed(1, VOCAB)),
        Request("near", (1, 2, 3), 50, sampling=hashed(2, VOCAB)),
    ]
    run.admit(asks[0])
    while len(run.streams["far"].context) < 150:
        run.lanes.round()
    count = len(behind(run))
    run.admit(asks[1])
    run.finish()
    run.check_serial(*asks)
    together = [windows for windows in behind(run)[count:] if len(windows) == 2]
    assert len(together) > 3


def test_what_lands_is_not_said_to_begin_before_what_was_committed() -> None:
    """A plain window is committed before it is read; one behind it keeps its place where the numbers are not finite."""
    ask = Request("r0", (0, 2, 3), 90, sampling=hashed(0, VOCAB), drafts=False)
    run = DraftedRun(settings(), "wrong", target={**TARGET, "not_finite": {"r0": 50}}, hold_ms=GRID_MS)
    run.admit(ask)
    run.finish()
    assert run.streams["r0"].reason == "error"


def test_rounds_run_ahead_while_a_prompt_is_filled() -> None:
    run = DraftedRun(settings(), target=TARGET, hold_ms=GRID_MS)
    first, long = requests(1, 150)[0], Request("long", tuple(range(40)), 30, sampling=hashed(5, VOCAB))
    run.admit(first)
    while len(behind(run)) < 3:
        run.lanes.round()
    run.admit(long)
    ahead = []
    while not run.streams["long"].decoding:
        run.lanes.round()
        ahead.append(run.backend.forwards[-1][0].pending is None)
    assert len(ahead) > 5
    assert all(ahead[:-1])
    run.finish()
    run.check_serial(first, long)
