"""The master oracle with a drafter: whatever it drafts, for whom and when, a reply equals the serial one.

A token counts where its round verified at least one draft. The scripted target and drafter check the state on both
sides: rows that are stale, missing or another lane's change what is drawn, or stop the run.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.lanes.drafted_harness import FLAT_MS, GRID_MS, DraftedRun, complete, settings
from tests.lanes.test_oracle import counting, requests
from tests.scripted_drafter import ScriptedDrafter
from tests.stubs import EOS, VOCAB, hashed, listed, looping, penalised, serial
from tfjax.lanes.copy_drafts import copies_for
from tfjax.lanes.stream import Request

MODES = ScriptedDrafter.MODES
OFTEN = {1, 2, 3, 6, 16}
DEPTHS = [depth if depth in OFTEN else pytest.param(depth, marks=pytest.mark.slow) for depth in range(1, 17)]
NEVER_REJECTED = {"perfect", "short"}
SETTINGS: dict[str, dict[str, Any]] = {
    "priced": {"target": {"window_ms": FLAT_MS}, "hold_ms": GRID_MS},
    "own depths": {"target": {"window_ms": FLAT_MS}, "step_ms": 1.0},
    "plain waits": {"target": {"window_ms": FLAT_MS}, "step_ms": 1.0, "stands_aside": False},
    "not timed": {"target": {}},
}


def options(kind: str, held_on_target: bool = False, **more: Any) -> dict[str, Any]:
    found = {**SETTINGS[kind], **more}
    return {**found, "target": {**found["target"], "held_on_target": held_on_target, "lands": held_on_target}}


def copies(request: Request) -> Any:
    return copies_for(3, 16, request)


def rejected(run: DraftedRun) -> int:
    return sum(stream.counts.drafted - stream.counts.accepted for stream in run.streams.values())


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("depth", DEPTHS)
def test_drafted_equals_serial(mode: str, depth: int, kind: str) -> None:
    ahead, held = depth % 2 == 0, depth % 3 == 0
    runs = [
        complete(requests(company), settings(run_ahead=ahead), mode, depth=depth, **options(kind, held))
        for company in (1, 2, 8)
    ]
    if mode != "empty" and not (mode == "short" and (depth == 1 or kind == "not timed")):
        assert sum(map(counting, runs)) >= 50
    if mode not in NEVER_REJECTED and not (mode == "mixed" and (depth <= 2 or kind == "not timed")):
        assert sum(map(rejected, runs)) > 0


@pytest.mark.parametrize("kind", ["priced", "own depths"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("held", [True, False])
def test_beside_copies(mode: str, kind: str, held: bool) -> None:
    """Copies that go first take the place of drafts that were made already, in one and the same stream."""
    for company in (1, 3, 8):
        run = complete(requests(company, 90), settings(first_width=3), mode, copies, depth=6, **options(kind, held))
        assert run.drafter.holds
        assert any(stream.counts.drafted for stream in run.streams.values())


def test_thousands_of_tokens_count() -> None:
    total = 0
    for mode in ("perfect", "mixed", "wrong", "garbage", "hostile"):
        for kind in ("priced", "own depths"):
            run = complete(requests(8, 150), settings(), mode, **options(kind, kind == "priced"))
            total += counting(run)
    assert total >= 5000


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("mode", MODES)
def test_company_that_comes_and_goes(mode: str, kind: str) -> None:
    """Streams join, leave and are cancelled while others decode; some have no drafts, some copies too."""
    for held in (True, False):
        run = DraftedRun(settings(lanes=4), mode, copies, depth=5, **options(kind, held))
        asks = [*requests(9), *requests(12, drafts=False)[9:11], *requests(12)[11:]]
        for number, ask in enumerate(asks):
            run.admit(ask)
            for _ in range(1 + 3 * (number % 4)):
                run.lanes.round()
        run.lanes.cancel(run.streams["r11"])
        run.finish()
        run.check_serial(*asks[:11])
        assert set(run.drafter.opened) <= {f"r{number}" for number in (*range(9), 11)}


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("rounds", [1, 2, 3, 5, 8])
def test_cancelled_at_any_round(kind: str, rounds: int) -> None:
    for held in (True, False):
        run = DraftedRun(settings(), "mixed", **options(kind, held))
        asks = requests(3, 60)
        run.admit(*asks)
        for _ in range(rounds):
            run.lanes.round()
        run.lanes.cancel(run.streams["r1"])
        run.lanes.round()
        assert run.streams["r1"].reason == "cancelled"
        tokens = run.recorder.reply("r1")[0]
        assert tokens == serial(asks[1])[0][: len(tokens)]
        run.finish()
        run.check_serial(asks[0], asks[2])


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("pages", [14, 18, 26])
@pytest.mark.parametrize("growth_rows", [1, 5])
def test_short_of_pages(kind: str, pages: int, growth_rows: int) -> None:
    """Streams with drafts under way are paused and go on, on other pages than before."""
    paused = 0
    for mode in ("perfect", "mixed", "hostile"):
        for held in (True, False):
            numbers = settings(pages=pages, growth_rows=growth_rows)
            run = DraftedRun(numbers, mode, copies, depth=6, **options(kind, held))
            asks = [
                Request(f"r{number}", tuple(range(number, 4 + 4 * number)), 30, sampling=hashed(number))
                for number in range(5)
            ]
            run.admit(*asks)
            while run.lanes.round():
                paused += sum(stream.paused for stream in run.streams.values())
            run.check_no_leak()
            for ask in asks:
                if run.streams[ask.id].reason == "error":
                    tokens = run.recorder.reply(ask.id)[0]
                    assert "the cache is full" in str(run.streams[ask.id].error)
                    assert tokens == serial(ask)[0][: len(tokens)]
                else:
                    run.check_serial(ask)
    if growth_rows == 1:
        assert paused, "this pool is too small for all"


@pytest.mark.parametrize("offset", range(12))
@pytest.mark.parametrize("held", [True, False])
def test_the_end_at_each_offset_of_a_block(offset: int, held: bool) -> None:
    """EOS, one of several stop ids, and a host check that ends at the same place."""
    text = [*range(1, offset + 2)]
    ends: list[dict[str, Any]] = [
        {"stop_ids": frozenset({EOS}), "sampling": listed([*text, EOS, 7, 7, 7])},
        {"stop_ids": frozenset({EOS, 44, 45}), "sampling": listed([*text, 45, 7, 7, 7])},
        {"check": lambda token: token == 44, "sampling": listed([*text, 44, 7, 7, 7])},
    ]
    for kind in SETTINGS:
        for end in ends:
            ask = Request("r", (1, 2, 3), 40, **end)
            run = complete([ask], settings(), "perfect", depth=8, **options(kind, held))
            assert run.streams["r"].reason == "stop"
            assert run.streams["r"].emitted == offset + 2


@pytest.mark.parametrize("max_new", range(1, 21))
def test_exactly_max_new_tokens(max_new: int) -> None:
    for kind in SETTINGS:
        for held in (True, False):
            for depth in (1, 7):
                ask = Request("r", (1, 2, 3), max_new, sampling=hashed(4))
                run = complete([ask], settings(), "perfect", depth=depth, **options(kind, held))
                counts = run.streams["r"].counts
                assert run.streams["r"].emitted == max_new
                assert counts.kept == max_new - 1
                assert counts.accepted == sum(counts.accepted_per_position) <= counts.drafted <= max_new - 1


@pytest.mark.parametrize("room", range(5))
def test_the_last_places_of_target_and_drafter(room: int) -> None:
    """Near the end of its own context the drafter stops drafting; the target goes on to the end of its own."""
    for kind in SETTINGS:
        ask = Request("r", tuple(range(20)), 400, sampling=hashed(2))
        run = complete([ask], settings(context=64), "perfect", depth=4, context=36 + room, **options(kind))
        assert len(run.streams["r"].context) == 64
        assert run.drafter.holds
        full = complete([ask], settings(context=36 + room), "perfect", depth=4, **options(kind))
        assert len(full.streams["r"].context) == 36 + room


@pytest.mark.parametrize("length", [1, 2, 5, 9])
@pytest.mark.parametrize("kind", SETTINGS)
def test_forced_tokens_amid_drafts(kind: str, length: int) -> None:
    for held in (True, False):
        for rounds in (2, 3, 4):
            script = hashed(3)
            run = DraftedRun(settings(), "perfect", depth=5, **options(kind, held))
            others = requests(2, 50)
            run.admit(Request("f", (1, 2, 3), 60, sampling=script), *others)
            for _ in range(rounds):
                run.lanes.round()
            stream = run.streams["f"]
            at, forced = stream.emitted, [40 + place % 5 for place in range(length)]
            stream.forced.extend(forced)
            run.finish()
            expected = serial(Request("f", (1, 2, 3), 60, sampling=forcing(script, at, forced)))
            assert run.recorder.reply("f")[:2] == expected[:2]
            run.check_serial(*others)


def forcing(script: Any, at: int, forced: list[int]) -> Any:
    def next_token(context: Any, prompt: int) -> int:
        done = len(context) - prompt - at
        return forced[done] if 0 <= done < len(forced) else script(context, prompt)

    return next_token


def test_history_is_that_of_each_row() -> None:
    """A target that counts what it said before, and one that bans its end for some tokens."""
    for script in (penalised(looping(2, 4), 3), penalised(listed([1, EOS, EOS, 2]), 9, min_tokens=6)):
        for mode in MODES:
            for kind in SETTINGS:
                ask = Request("r", (1, 2, 3, 4), 60, frozenset({EOS}), sampling=script)
                complete([ask], settings(), mode, depth=8, **options(kind))


def test_landing_does_not_depend_on_company() -> None:
    for company in (1, 2, 4, 8, 16):
        asks = [Request(f"r{number}", (number, 1, 2), 60, sampling=hashed(number)) for number in range(company)]
        run = complete(asks, settings(lanes=16, pages=800), "perfect", **options("priced"))
        assert all(stream.counts.accepted == stream.counts.drafted > 0 for stream in run.streams.values())


@pytest.mark.parametrize("kind", SETTINGS)
def test_prompts_that_share_pages(kind: str) -> None:
    """The drafter has no rows of a prompt that a stream without drafts left behind."""
    prompt = tuple((3 * place) % VOCAB for place in range(33))
    asks = [
        Request(f"r{number}", prompt + (number,) * number, 30, drafts=number != 0, sampling=hashed(9))
        for number in range(4)
    ]
    for held in (True, False):
        run = DraftedRun(settings(prompt_pages=200), "perfect", **options(kind, held))
        for ask in asks:
            run.admit(ask)
            while run.lanes.round():
                pass
        run.check_serial(*asks)
        assert run.streams["r3"].reused >= 28
        assert run.streams["r3"].counts.accepted > 0


def test_fillers_of_a_text_that_repeats_its_last_token_land() -> None:
    """Where the target says the pending token again, a filler is right by chance: then it counts as landed."""
    ask = Request("r", (1, 2, 3), 40, sampling=lambda context, prompt: 6)
    for held in (True, False):
        run = complete([ask], settings(run_ahead=False), fills=lambda stream: True, **options("priced", held))
        assert not run.drafter.holds
        assert run.streams["r"].counts.accepted > 20
