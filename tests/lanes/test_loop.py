"""The round loop, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.lanes.drafted_harness import FLAT_MS
from tests.lanes.drafted_harness import complete as complete_drafted
from tests.lanes.harness import PAGE_ROWS, Run, complete, drafter, settings
from tests.stubs import (
    EOS,
    VOCAB,
    FakeClock,
    Recorder,
    ScriptedBackend,
    ScriptedProposer,
    hashed,
    listed,
    looping,
    serial,
    teasing,
)
from tfjax.lanes.loop import Lanes
from tfjax.lanes.roster import Refused
from tfjax.lanes.stream import Request, Stream
from tfjax.lanes.window import Result


def request(name: str = "r", prompt: int = 5, max_new: int = 20, **options: Any) -> Request:
    script = options.pop("sampling", hashed(len(name) + prompt))
    tokens = tuple((ord(name[-1]) + place) % VOCAB for place in range(prompt))
    return Request(name, tokens, max_new, sampling=script, **{"stop_ids": frozenset({EOS}), **options})


# Prompts.


def test_a_lone_prompt_is_filled_in_the_longest_chunks() -> None:
    run = complete([request(prompt=37)], settings())
    assert run.backend.chunks == [("r", 0, 16), ("r", 16, 32), ("r", 32, 37)]


def test_beside_a_decoding_stream_chunks_are_short() -> None:
    run = Run(settings())
    run.admit(request("a"))
    run.lanes.round()
    run.admit(request("b", prompt=10))
    run.finish()
    assert run.backend.chunks[1:] == [("b", 0, 4), ("b", 4, 8), ("b", 8, 10)]
    run.check_serial(request("a"), request("b", prompt=10))


def test_a_decoding_stream_goes_on_between_chunks() -> None:
    run = Run(settings())
    run.admit(request("a", max_new=50))
    run.lanes.round()
    run.admit(request("b", prompt=40))
    before = run.streams["a"].emitted
    for _ in range(5):
        run.lanes.round()
    assert not run.streams["b"].decoding
    assert run.streams["a"].emitted == before + 5


def test_the_first_token_is_sent_with_the_last_chunk() -> None:
    run = Run(settings())
    run.admit(request("a", max_new=9))
    run.lanes.round()
    assert run.recorder.tokens["a"][0] == serial(request("a", max_new=9))[0][0]


@pytest.mark.parametrize(("tokens", "max_new", "reason"), [([EOS], 9, "stop"), ([3], 1, "length"), ([EOS], 1, "stop")])
def test_the_first_token_may_be_the_last(tokens: list[int], max_new: int, reason: str) -> None:
    run = complete([request(max_new=max_new, sampling=listed(tokens))], settings())
    assert run.streams["r"].reason == reason
    assert run.backend.calls["verify"] == 0
    assert run.streams["r"].counts.rounds == 0


# Running ahead.


def test_a_lone_plain_stream_is_queued_before_its_token_is_read() -> None:
    run = complete([request(max_new=12, drafts=False)], settings())
    pendings = [windows[0].pending for windows in run.backend.forwards]
    assert pendings[0] is not None
    assert pendings[1:] == [None] * 10
    assert run.streams["r"].counts.rounds == 11


def test_it_never_runs_past_max_new_or_the_context() -> None:
    for numbers, ask in [(settings(), 12), (settings(context=17), 99)]:
        run = complete([request(max_new=ask, drafts=False)], numbers)
        assert len(run.backend.forwards) == 11


def test_late_cuts_discard_the_queued_round() -> None:
    cuts: list[dict[str, Any]] = [
        {"sampling": listed([1, 2, 3, EOS])},
        {"sampling": listed([1, 2, 3, 4]), "check": lambda token: token == 4},
    ]
    for cut in cuts:
        run = complete([request(drafts=False, **cut)], settings())
        assert len(run.backend.forwards) == 4, "three wanted, one discarded"
        assert run.backend.calls["read"] == 3
        assert run.streams["r"].counts.rounds == 3
        assert run.streams["r"].counts.kept == 3
        assert run.lanes.rounds == 3


@pytest.mark.parametrize("company", [2, 3, 8])
def test_plain_streams_in_company_run_ahead(company: int) -> None:
    asks = [request(f"r{number}", max_new=60, drafts=False, stop_ids=frozenset()) for number in range(company)]
    run = complete(asks, settings())
    together = [windows for windows in run.backend.forwards if len(windows) == company]
    ahead = [windows for windows in together if windows[0].pending is None]
    assert all(window.pending is None for windows in ahead for window in windows)
    assert len(ahead) > 0.8 * len(together) > 20


def test_they_do_not_where_any_may_have_a_draft() -> None:
    asks = [request("a", max_new=40), request("b", max_new=40, drafts=False)]
    run = complete(asks, settings(), drafter("perfect"))
    together = [windows for windows in run.backend.forwards if len(windows) == 2]
    assert together
    assert all(window.pending is not None for windows in together for window in windows)


def test_they_do_not_beside_a_drafter_whose_rounds_cannot() -> None:
    asks = [request("a", max_new=40, drafts=False), request("b", max_new=40, drafts=False)]
    for lands in (False, True):
        run = complete_drafted(asks, target={"held_on_target": True, "lands": lands, "window_ms": FLAT_MS})
        together = [windows for windows in run.backend.forwards if len(windows) == 2]
        assert any(windows[0].pending is None for windows in together) == lands


def test_nothing_is_queued_ahead_while_a_prompt_waits_to_be_filled() -> None:
    run = Run(settings())
    run.admit(request("a", max_new=40, drafts=False))
    for _ in range(3):
        run.lanes.round()
    run.admit(request("b", prompt=30))
    run.lanes.round()
    queued = len(run.backend.forwards)
    run.lanes.round()
    assert run.backend.forwards[queued][0].pending is not None
    run.finish()
    run.check_serial(request("a", max_new=40, drafts=False), request("b", prompt=30))


def test_forced_tokens_stop_it_from_running_ahead() -> None:
    run = Run(settings())
    run.admit(request(max_new=20, drafts=False))
    run.lanes.round()
    run.lanes.round()
    stream = run.streams["r"]
    stream.forced.extend([7, 8])
    at = len(stream.context)
    run.lanes.round()
    run.lanes.round()
    assert not stream.forced
    assert stream.context[at : at + 2] == [7, 8]
    run.finish()
    script = forcing(hashed(1 + 5), at - 5, [7, 8])
    assert run.recorder.reply("r")[0] == serial(request(max_new=20, sampling=script))[0]


@pytest.mark.parametrize(
    "script", [looping(4, 1, slip=11), looping(7, 2, slip=5), looping(3, 3), hashed(4, 3), teasing(6)]
)
@pytest.mark.parametrize("least_match", [4, 6])
def test_running_ahead_with_copies_proposes_the_same(script: Any, least_match: int) -> None:
    ask = request(prompt=20, max_new=200, sampling=script, least_match=least_match)
    ahead = complete([ask], settings(run_ahead=True))
    behind = complete([ask], settings(run_ahead=False))
    assert ahead.backend.draft_windows == behind.backend.draft_windows
    assert ahead.streams["r"].counts == behind.streams["r"].counts


def test_drafts_do_not_keep_a_stream_from_running_ahead() -> None:
    run = complete([request(max_new=40)], settings())
    assert sum(windows[0].pending is None for windows in run.backend.forwards) > 30


# Forced tokens.


def forcing(script: Any, at: int, forced: Sequence[int]) -> Any:
    """The serial oracle's view: after `at` emitted tokens the forced ones come, whatever the script says."""

    def next_token(context: Sequence[int], prompt: int) -> int:
        done = len(context) - prompt - at
        return forced[done] if 0 <= done < len(forced) else script(context, prompt)

    return next_token


@pytest.mark.parametrize("length", [1, 2, 5, 30])
@pytest.mark.parametrize("max_new", [3, 4, 5, 8, 60])
def test_forced_tokens_are_emitted_whatever_is_drawn(length: int, max_new: int) -> None:
    script = hashed(3)
    forced = [place % 5 + 40 for place in range(length)]
    run = Run(settings(), drafter("perfect"), ScriptedBackend(pages=400, widths=(2, 4, 8)))
    run.admit(request(max_new=max_new, sampling=script))
    run.lanes.round()
    stream = run.streams["r"]
    stream.forced.extend(forced)
    at = stream.emitted
    run.finish()
    assert all(window.forced in (0, len(window.drafts)) for windows in run.backend.forwards for window in windows)
    assert run.recorder.reply("r")[:2] == serial(request(max_new=max_new, sampling=forcing(script, at, forced)))[:2]


def test_forced_tokens_are_neither_drafted_nor_accepted() -> None:
    run = Run(settings(), drafter("empty"))
    run.admit(request())
    run.lanes.round()
    run.streams["r"].forced.extend([7, 8, 9])
    run.finish()
    counts = run.streams["r"].counts
    assert (counts.drafted, counts.accepted, counts.drafted_rounds) == (0, 0, 0)


def test_tokens_forced_before_the_first_are_emitted_once() -> None:
    script = hashed(3)
    run = Run(settings(), drafter("perfect"))
    run.admit(request(max_new=12, sampling=script))
    run.streams["r"].forced.extend([41, 42, 43])
    run.finish()
    forced = request(max_new=12, sampling=forcing(script, 0, [41, 42, 43]))
    assert run.recorder.reply("r")[:2] == serial(forced)[:2]


def test_a_forced_stop_token_ends_the_reply() -> None:
    run = Run(settings(), drafter("empty"))
    run.admit(request())
    run.lanes.round()
    run.streams["r"].forced.extend([7, EOS, 9])
    run.finish()
    assert run.recorder.tokens["r"][-2:] == [7, EOS]
    assert run.streams["r"].reason == "stop"


# Cancelling.


def test_a_waiting_stream_is_cancelled_at_once() -> None:
    run = Run(settings(lanes=1))
    run.admit(request("a"), request("b"))
    run.lanes.round()
    run.lanes.cancel(run.streams["b"])
    run.lanes.round()
    assert run.recorder.reply("b") == ([], "cancelled", [])
    run.finish()
    run.check_serial(request("a"))


def test_a_prompt_is_cancelled_between_chunks() -> None:
    run = Run(settings())
    run.admit(request(prompt=100))
    run.lanes.round()
    run.lanes.cancel(run.streams["r"])
    run.lanes.round()
    assert run.lanes.idle
    assert len(run.backend.chunks) == 1
    run.check_no_leak()


@pytest.mark.parametrize("rounds", [1, 2, 3, 7])
@pytest.mark.parametrize("drafts", [True, False])
def test_a_decoding_stream_is_cancelled_within_a_round(rounds: int, drafts: bool) -> None:
    run = Run(settings(), drafter("perfect"))
    run.admit(request(drafts=drafts, max_new=100))
    for _ in range(rounds):
        run.lanes.round()
    had = list(run.recorder.tokens["r"])
    run.lanes.cancel(run.streams["r"])
    run.lanes.cancel(run.streams["r"])
    run.lanes.round()
    assert run.recorder.reply("r")[:2] == (had, "cancelled")
    run.check_no_leak()


def test_what_is_cancelled_during_a_forward_is_not_delivered() -> None:
    class Leaving(ScriptedBackend):
        def read(self, ticket: int) -> Sequence[Result]:
            if self.calls["read"] == 3:
                run.lanes.cancel(run.streams["a"])
                had.extend(run.recorder.tokens["a"])
            return super().read(ticket)

    had: list[int] = []
    run = Run(settings(), None, Leaving(pages=400))
    run.admit(request("a"), request("b"))
    for _ in range(5):
        run.lanes.round()
    assert had
    assert run.recorder.reply("a")[:2] == (had, "cancelled")
    run.finish()
    run.check_serial(request("b"))


# Failures.


@pytest.mark.parametrize("method", ["prefill_begin", "prefill_step", "first", "verify", "read", "keep"])
@pytest.mark.parametrize("call", [1, 2, 3, 6])
@pytest.mark.parametrize("company", [1, 3])
def test_a_failed_call_ends_the_streams_that_it_was_for(method: str, call: int, company: int) -> None:
    asks = [request(f"r{number}", max_new=9, drafts=number % 2 == 0) for number in range(company)]
    run = Run(settings(), drafter("mixed"), ScriptedBackend(pages=400, fail_at={method: {call}}))
    run.admit(*asks)
    run.finish()
    for ask in asks:
        tokens, reason, _ = run.recorder.reply(ask.id)
        if reason == "error":
            assert f"{method} call {call}" in str(run.streams[ask.id].error)
            assert tokens == serial(ask)[0][: len(tokens)]
        else:
            run.check_serial(ask)
    failed = sum(stream.reason == "error" for stream in run.streams.values())
    reached = run.backend.calls[method] >= call
    assert bool(failed) == reached
    if method in {"prefill_begin", "prefill_step", "first"}:
        assert failed <= 1


def test_after_a_failed_round_new_requests_are_served() -> None:
    run = Run(settings(), None, ScriptedBackend(pages=400, fail_at={"read": {3}}))
    run.admit(request("a"), request("b"))
    run.finish()
    run.admit(request("c"))
    run.finish()
    run.check_serial(request("c"))


def test_a_lane_that_cannot_be_released_is_still_given_out() -> None:
    run = Run(settings(lanes=1), None, ScriptedBackend(pages=400, fail_at={"release": {1}}))
    run.admit(request("a"))
    for _ in range(30):
        run.lanes.round()
    assert run.streams["a"].reason == "length"
    assert run.lanes.idle


@pytest.mark.parametrize("position", [4, 5, 9])
@pytest.mark.parametrize("drafts", [True, False])
def test_numbers_that_are_not_finite_end_their_stream_alone(position: int, drafts: bool) -> None:
    asks = [request("a", drafts=drafts), request("b", drafts=drafts)]
    run = Run(settings(), drafter("perfect"), ScriptedBackend(pages=400, not_finite={"a": position}))
    run.admit(*asks)
    run.finish()
    assert run.streams["a"].reason == "error"
    assert run.streams["a"].error == "numbers are not finite"
    run.check_serial(asks[1])


def test_a_check_that_raises_ends_its_stream_alone() -> None:
    asks = [request("a", check=lambda token: token == 1 // 0), request("b")]
    run = Run(settings(), drafter("perfect"))
    run.admit(*asks)
    run.finish()
    assert run.streams["a"].error == "ZeroDivisionError: integer division or modulo by zero"
    run.check_serial(asks[1])


class Deafening(Recorder):
    """Raises for one request."""

    def on_tokens(self, stream: Stream, tokens: Sequence[int], logprobs: Sequence[Any] | None) -> None:
        super().on_tokens(stream, tokens, logprobs)
        if stream.request.id == "a" and stream.emitted > 4:
            raise RuntimeError("too loud")

    def on_finish(self, stream: Stream) -> None:
        super().on_finish(stream)
        raise RuntimeError("still too loud")


@pytest.mark.parametrize("company", [1, 2])
def test_a_listener_that_raises_harms_its_stream_alone(company: int) -> None:
    listener = Deafening()
    backend = ScriptedBackend(pages=400)
    lanes = Lanes(backend, FakeClock(), settings(), listener)
    asks = [request("a", drafts=False), request("b")][:company]
    for ask in asks:
        lanes.admit(ask)
    while lanes.round():
        pass
    assert listener.finished["a"].reason == "error"
    assert listener.finished["a"].error == "RuntimeError: too loud"
    assert lanes.pages_held == 0
    assert not backend.lanes
    for ask in asks[1:]:
        assert listener.reply(ask.id) == serial(ask)


def test_a_proposer_that_raises_costs_no_token() -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    complete([request("a"), request("b")], settings(), lambda _: Broken())


def test_a_proposer_that_is_wrong_about_unread_tokens_loses_drafts_and_no_token() -> None:
    class Overconfident(ScriptedProposer):
        def pass_unread(self) -> bool:
            return True

    run = complete([request(max_new=60)], settings(first_width=3), lambda ask: Overconfident(ask, "mixed"))
    assert run.streams["r"].counts.drafted


# Lanes, pages, turns.


def test_more_requests_than_lanes_wait_their_turn() -> None:
    asks = [request(f"r{number}", max_new=3 + number) for number in range(9)]
    run = complete(asks, settings(lanes=2))
    assert list(run.recorder.finished) == [f"r{number}" for number in range(9)]


def test_a_round_holds_no_more_streams_than_it_may() -> None:
    asks = [request(f"r{number}") for number in range(7)]
    run = complete(asks, settings(batch_streams=3), drafter("mixed"))
    assert max(len(windows) for windows in run.backend.forwards) == 3


@pytest.mark.parametrize("growth_rows", [1, 4, 9, 2048])
@pytest.mark.parametrize("pages", [14, 20, 31])
def test_streams_short_of_pages_wait_and_stay_exact(pages: int, growth_rows: int) -> None:
    asks = [request(f"r{number}", prompt=4 + 3 * number, max_new=30) for number in range(5)]
    run = Run(settings(pages=pages, growth_rows=growth_rows), drafter("mixed"))
    run.admit(*asks)
    paused = 0
    while run.lanes.round():
        paused += sum(stream.paused for stream in run.streams.values())
    if growth_rows == 1:
        assert paused, "this pool is too small for all"
    run.check_no_leak()
    for ask in asks:
        tokens, reason, _ = run.recorder.reply(ask.id)
        if reason == "error":
            assert "--parallel" in str(run.streams[ask.id].error)
            assert tokens == serial(ask)[0][: len(tokens)]
        else:
            run.check_serial(ask)
    assert run.streams["r0"].reason != "error", "the oldest never has to go"


def test_as_a_last_resort_the_newest_stream_ends_with_an_error() -> None:
    asks = [request(name, prompt=4, max_new=30) for name in ("a", "b")]
    run = Run(settings(pages=9, growth_rows=1))
    run.admit(*asks)
    run.finish()
    assert run.streams["b"].reason == "error"
    assert run.streams["b"].error == (
        "the cache is full: 9 pages of 4 tokens for 2 requests; start with a lower --parallel or --context"
    )
    run.check_serial(asks[0])


def test_nobody_starts_while_an_older_stream_is_short_of_pages() -> None:
    run = Run(settings(pages=9, growth_rows=1))
    run.admit(request("a", prompt=4, max_new=30), request("b", prompt=4, max_new=10), request("c", prompt=4, max_new=4))
    while run.lanes.round():
        if any(stream.paused and stream.reason is None for stream in run.streams.values()):
            assert run.streams["c"].lane < 0 or run.streams["c"].times.started_s is not None
    run.check_no_leak()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"prompt": ()}, "0 prompt tokens and 5 to generate; both must be at least 1"),
        ({"max_new": 0}, "1 prompt tokens and 0 to generate"),
        ({"max_new": -3}, "-3 to generate"),
        ({"prompt": (VOCAB,)}, "outside 0..49"),
        ({"prompt": (-1,)}, "outside 0..49"),
        ({"prompt": (1,) * 64}, "a prompt of 64 tokens leaves no room for a reply in a context of 64"),
        (
            {"prompt": (1,) * 40, "max_new": 9},
            "49 tokens of prompt and reply need 13 cache pages of 4, and there are 12",
        ),
    ],
)
def test_what_can_never_be_served_is_refused(bad: dict[str, Any], message: str) -> None:
    run = Run(settings(context=64, pages=12))
    with pytest.raises(Refused, match=message):
        run.admit(Request(**{"id": "r", "prompt": (1,), "max_new": 5, "sampling": hashed(), **bad}))
    assert run.lanes.idle


def test_the_largest_request_that_fits_is_served() -> None:
    complete([request(prompt=40, max_new=8)], settings(context=64, pages=12), drafter("perfect"))
    complete([request(prompt=63, max_new=8)], settings(context=64), drafter("perfect"))


# Prices.


def run_with_prices(table: dict[int, float], company: int, mode: str = "perfect") -> Run:
    clock = FakeClock()
    backend = ScriptedBackend(pages=400, widths=tuple(table), window_ms=table, clock=clock)
    run = Run(settings(), drafter(mode), backend, clock)
    asks = [request(f"r{number}", max_new=60) for number in range(company)]
    run.admit(*asks)
    run.finish()
    run.check_serial(*asks)
    return run


@pytest.mark.parametrize("company", [1, 4])
def test_prices_decide_how_much_is_drafted(company: int) -> None:
    flat = run_with_prices({2: 30.0, 4: 31.0, 8: 32.0, 16: 33.0, 32: 34.0}, company)
    steep = run_with_prices({2: 30.0, 4: 90.0, 8: 300.0, 16: 900.0, 32: 2000.0}, company)
    widest = [max(sum(window.rows for window in windows) for windows in run.backend.forwards) for run in (flat, steep)]
    assert widest[0] > 8
    assert widest[1] == (2 if company == 1 else 4)


CPU_MS = {2: 30.0, 4: 39.0, 8: 47.0, 16: 70.0, 32: 120.0}
"""Window times by width as two processor cores have them: wide windows cost."""


def decode_ms(script: Any, company: int, drafts: bool) -> float:
    clock = FakeClock()
    backend = ScriptedBackend(pages=2000, widths=tuple(CPU_MS), window_ms=CPU_MS, clock=clock, logprobs=False)
    run = Run(settings(context=1000, pages=2000), None, backend, clock)
    asks = [
        request(f"r{number}", max_new=400, sampling=script, drafts=drafts, least_match=4) for number in range(company)
    ]
    run.admit(*asks)
    run.finish()
    run.check_tokens(*asks)
    return 1000 * clock()


@pytest.mark.parametrize("company", [1, 2, 4, 8])
@pytest.mark.parametrize("phrase", [4, 6, 9])
def test_copies_that_always_fail_cost_less_than_two_percent(phrase: int, company: int) -> None:
    script = teasing(phrase)
    assert decode_ms(script, company, drafts=True) <= 1.02 * decode_ms(script, company, drafts=False)


def test_copies_that_land_pay() -> None:
    for company, share in [(1, 0.3), (4, 0.7)]:
        times = [decode_ms(lambda context, prompt: len(context) % 9, company, drafts) for drafts in (True, False)]
        assert times[0] <= share * times[1]


def test_rounds_with_a_chunk_in_them_do_not_teach_overhead() -> None:
    clock = FakeClock()
    backend = ScriptedBackend(pages=400, widths=(2, 4), window_ms={2: 30.0, 4: 40.0}, clock=clock)
    run = Run(settings(), drafter("empty"), backend, clock)
    run.admit(request("a", max_new=40), request("b", prompt=60, max_new=40))
    run.finish()
    assert run.lanes._prices.overhead_ms(1) == pytest.approx(0.0)


def test_times_are_in_order() -> None:
    run = run_with_prices({2: 30.0, 4: 40.0}, 3)
    for stream in run.streams.values():
        times = stream.times
        assert times.started_s is not None
        assert times.first_token_s is not None
        assert times.finished_s is not None
        assert times.admitted_s <= times.started_s < times.first_token_s < times.finished_s


# Counts.


def test_counts_of_a_perfect_drafter() -> None:
    run = complete([request(max_new=20)], settings(first_width=4), drafter("perfect"))
    counts = run.streams["r"].counts
    assert (counts.rounds, counts.drafted, counts.accepted) == (4, 15, 15)
    assert counts.accepted_per_position == [4, 4, 4, 3]
    assert (counts.kept, counts.drafted_rounds, counts.min_rows) == (19, 4, 4)


def test_accepted_counts_only_what_was_emitted() -> None:
    script = listed([1, 2, 3, 4, 5, 6])
    run = complete(
        [request(sampling=script, check=lambda token: token == 4)], settings(first_width=8), drafter("perfect")
    )
    counts = run.streams["r"].counts
    assert (counts.drafted, counts.accepted, counts.kept) == (8, 3, 3)


def test_requests_without_drafts_open_no_proposer() -> None:
    opened: list[str] = []

    def proposer(ask: Request) -> Any:
        opened.append(ask.id)
        return drafter("perfect")(ask)

    complete([request("a", drafts=False), request("b")], settings(), proposer)
    assert opened == ["b"]
    complete([request("c")], settings(draft_tokens=0), proposer)
    assert opened == ["b"]


@pytest.mark.parametrize("learn_rows", [False, True])
def test_what_rows_add_is_learned_where_that_is_asked_for(learn_rows: bool) -> None:
    """Forwards take half a millisecond more for each row than their widths did when they were timed."""

    class SlowRows(ScriptedBackend):
        def _queue_time(self, rows: int) -> float:
            self.queue_ms(0.5 * (rows - 1))
            return super()._queue_time(rows)

    clock = FakeClock()
    backend = SlowRows(pages=400, widths=tuple(CPU_MS), window_ms=CPU_MS, clock=clock)
    run = Run(settings(learn_rows=learn_rows), drafter("mixed"), backend, clock)
    asked = request(max_new=60)
    run.admit(asked)
    run.finish()
    run.check_serial(asked)
    prices = run.lanes._prices
    assert prices.forward_ms(5, 1) == pytest.approx(prices.forward_ms(5) + 4 * 0.5 * learn_rows)


def test_a_window_never_holds_more_drafts_than_asked() -> None:
    run = complete([request(max_new=60)], settings(first_width=16, draft_tokens=3), drafter("perfect"))
    assert max(len(drafts) for _, _, drafts in run.backend.draft_windows) == 3


def test_copies_beside_others_stay_narrow() -> None:
    asks = [request(name, max_new=80, sampling=lambda context, prompt: len(context) % 9) for name in ("a", "b")]
    run = complete(asks, settings(first_width=2), window_ms=CPU_MS, widths=tuple(CPU_MS))
    shared = [window for windows in run.backend.forwards if len(windows) == 2 for window in windows]
    assert max(len(window.drafts) for window in shared) == 2


def test_a_request_says_how_long_a_match_must_be() -> None:
    drafted = [
        complete([request(max_new=80, sampling=teasing(5), least_match=least)], settings()).streams["r"].counts.drafted
        for least in (4, 5, 6, 9)
    ]
    assert drafted[0] > drafted[1] > drafted[2] > drafted[3]


def test_an_idle_loop_has_nothing_to_do() -> None:
    run = Run(settings())
    assert not run.lanes.round()
    run.admit(request())
    assert (run.lanes.waiting, run.lanes.running, run.lanes.idle) == (1, 0, False)
    assert run.lanes.round()
    assert (run.lanes.waiting, run.lanes.running) == (0, 1)
    assert run.lanes.pages_held == -(-25 // PAGE_ROWS)
