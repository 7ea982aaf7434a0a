"""The wrapper that joins a target and a drafter, call by call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.lanes.drafted_harness import FLAT_MS, GRID_MS, DraftedRun, complete, settings
from tests.lanes.test_oracle import requests
from tests.scripted_drafter import ScriptedDrafter
from tests.stubs import VOCAB, ScriptedBackend, hashed, serial
from tfjax.lanes.drafted import Drafted, WindowMismatch
from tfjax.lanes.drafter import Ask, Guess
from tfjax.lanes.stream import Request, Stream, Times
from tfjax.lanes.window import MixedDrafts, Window

PRICED: dict[str, Any] = {"target": {"window_ms": FLAT_MS}, "hold_ms": GRID_MS}


def prepared(
    mode: str = "perfect", drafts: Sequence[bool] = (True,), held_on_target: bool = False, **drafter: Any
) -> tuple[Drafted, ScriptedBackend, ScriptedDrafter, list[Stream]]:
    """Streams whose prompts are filled and whose first token is drawn."""
    target = ScriptedBackend(held_on_target=held_on_target)
    scripted = ScriptedDrafter(target, mode, **drafter)
    drafted = Drafted(target, scripted, VOCAB)
    streams = []
    for lane, wanted in enumerate(drafts):
        stream = Stream(Request(f"r{lane}", (1, 2, 3 + lane), 40, drafts=wanted, sampling=hashed(lane)), 43, Times(0.0))
        stream.lane, stream.pages = lane, list(range(12 * lane, 12 * lane + 12))
        drafted.prefill_begin(stream)
        drafted.prefill_step(stream, 0, 3)
        stream.context += drafted.first(stream).draws
        stream.cache_length = 3
        streams.append(stream)
    return drafted, target, scripted, streams


def window(stream: Stream, held: int = 0, **options: Any) -> Window:
    return Window(stream, stream.cache_length, stream.context[-1], held=held, **options)


def test_held_drafts_are_read_back_into_host_tokens_in_one_read() -> None:
    drafted, target, drafter, streams = prepared(drafts=[True] * 3)
    assert drafted.draft([], [], [Ask(stream, 2) for stream in streams[:2]]) == {}
    assert drafted.draft([], [], [Ask(streams[2], 3)]) == {}
    results = drafted.read(drafted.verify([window(streams[0], 2), window(streams[1], 1), window(streams[2], 3)]))
    assert drafter.calls["read"] == 1
    assert [window.held for window in target.forwards[0]] == [0, 0, 0]
    for stream, result, count in zip(streams, results, (2, 1, 3), strict=True):
        expected = serial(stream.request)[0][1 : 2 + count]
        assert list(result.draws) == expected
        assert list(result.drafts) == expected[:count]


def test_a_dispatch_that_serves_two_rounds_is_read_once() -> None:
    drafted, _, drafter, streams = prepared(drafts=[True, True])
    drafted.draft([], [], [Ask(stream, 2) for stream in streams])
    for stream in streams:
        assert len(drafted.read(drafted.verify([window(stream, 2)]))[0].drafts) == 2
    assert drafter.calls["read"] == 1


def test_held_drafts_pass_through_to_a_target_that_takes_them() -> None:
    drafted, target, drafter, streams = prepared(held_on_target=True)
    drafted.draft([], [], [Ask(streams[0], 3)])
    own = window(streams[0], 3)
    result = drafted.read(drafted.verify([own]))[0]
    assert drafter.calls["read"] == 0
    assert target.forwards[0][0] is own
    assert list(result.drafts) == serial(streams[0].request)[0][1:4]


@pytest.mark.parametrize("held_on_target", [True, False])
def test_fillers_are_the_pending_token_as_host_tokens(held_on_target: bool) -> None:
    drafted, target, drafter, streams = prepared(held_on_target=held_on_target, fills=lambda stream: True)
    assert drafted.draft([], [], [Ask(streams[0], 3)]) == {}
    result = drafted.read(drafted.verify([window(streams[0], 3)]))[0]
    pending = streams[0].context[-1]
    assert target.forwards[0][0].drafts == (pending,) * 3
    assert target.forwards[0][0].held == 0
    assert list(result.drafts) == [pending] * 3
    assert drafter.calls["hold"] == drafter.calls["read"] == 0


def test_missing_drafts_are_filled_up() -> None:
    drafted, target, _, streams = prepared("short")
    drafted.draft([], [], [Ask(streams[0], 4)])
    drafted.verify([window(streams[0], 4)])
    right, pending = serial(streams[0].request)[0][1:3], streams[0].context[-1]
    assert target.forwards[0][0].drafts == (*right, pending, pending)


def test_the_drafter_is_told_of_fillers_as_host_tokens() -> None:
    """A text that repeats its pending token accepts them, and the drafter's own drafts were other ones."""
    drafted, _, drafter, streams = prepared("short")
    told: list[tuple[tuple[int, ...], int, int]] = []
    drafter.absorb = lambda window, kept: told.append((window.drafts, window.held, kept))  # type: ignore[method-assign]
    drafted.draft([], [], [Ask(streams[0], 4)])
    held = window(streams[0], 4)
    drafted.verify([held])
    shown = drafted.target.forwards[0][0].drafts  # type: ignore[attr-defined]
    assert shown[-1] == streams[0].context[-1]
    drafted.draft([held], [5], [])
    drafted.draft([held], [1], [])
    assert told == [(shown, 0, 5), ((), 4, 1)]


@pytest.mark.parametrize("poison", [VOCAB, -1, 1 << 40])
def test_no_id_outside_the_vocabulary_reaches_the_target(poison: int) -> None:
    drafted, target, drafter, streams = prepared()
    drafted.draft([], [], [Ask(streams[0], 3)])
    drafter.read = lambda tickets: [[Guess((5, poison, 6))]]  # type: ignore[method-assign]
    drafted.verify([window(streams[0], 3)])
    assert target.forwards[0][0].drafts == (5, streams[0].context[-1], streams[0].context[-1])


def test_more_drafts_than_asked_are_cut() -> None:
    drafted, target, drafter, streams = prepared()
    drafted.draft([], [], [Ask(streams[0], 2)])
    drafter.read = lambda tickets: [[Guess((5, 6, 7, 8))]]  # type: ignore[method-assign]
    drafted.verify([window(streams[0], 2)])
    assert target.forwards[0][0].drafts == (5, 6)


def test_drafts_of_two_sorts_in_one_window_are_refused() -> None:
    stream = prepared()[3][0]
    with pytest.raises(MixedDrafts, match="1 held drafts beside 2 of the host; a window takes one sort"):
        window(stream, 1, drafts=(4, 5))


def test_a_hold_ends_with_the_next_window_of_its_stream() -> None:
    drafted, _, drafter, streams = prepared()
    stream = streams[0]
    drafted.draft([], [], [Ask(stream, 2)])
    plain = window(stream)
    token = drafted.read(drafted.verify([plain]))[0].draws[0]
    assert drafter.calls["read"] == 0, "drafts that no window uses are not waited for"
    drafted.keep([plain], [1])
    stream.context.append(token)
    stream.cache_length += 1
    with pytest.raises(WindowMismatch, match="a window with 2 held drafts, and the drafter has None for it"):
        drafted.verify([window(stream, 2)])


def test_more_held_drafts_than_were_asked_for_are_refused() -> None:
    drafted, *_, streams = prepared()
    drafted.draft([], [], [Ask(streams[0], 2)])
    with pytest.raises(WindowMismatch, match="a window with 3 held drafts"):
        drafted.verify([window(streams[0], 3)])


def test_only_the_window_that_was_verified_is_kept() -> None:
    drafted, *_, streams = prepared()
    drafted.draft([], [], [Ask(streams[0], 2)])
    own = window(streams[0], 2)
    with pytest.raises(WindowMismatch, match="r0: keep"):
        drafted.keep([own], [1])
    drafted.verify([own])
    with pytest.raises(WindowMismatch, match="r0: keep"):
        drafted.keep([window(streams[0], 2)], [1])
    drafted.keep([own], [1])
    with pytest.raises(WindowMismatch, match="r0: keep"):
        drafted.keep([own], [1])


# Requests without drafts, and what is left behind.


@pytest.mark.parametrize("chunks", [[(0, 30)], [(0, 4), (4, 8), (8, 30)], [(place, place + 1) for place in range(30)]])
def test_without_drafts_the_drafter_is_shown_nothing(chunks: list[tuple[int, int]]) -> None:
    target = ScriptedBackend(chunk_rows=(30,))
    drafter = ScriptedDrafter(target)
    drafted = Drafted(target, drafter, VOCAB)
    stream = Stream(Request("r", tuple(range(30)), 5, drafts=False, sampling=hashed()), 35, Times(0.0))
    stream.lane, stream.pages = 0, list(range(9))
    drafted.prefill_begin(stream)
    for start, stop in chunks:
        drafted.prefill_step(stream, start, stop)
    stream.context += drafted.first(stream).draws
    stream.cache_length = 30
    own = window(stream)
    drafted.read(drafted.verify([own]))
    drafted.draft([own], [1], [])
    drafted.keep([own], [1])
    drafted.release(stream)
    assert not drafter.calls


def test_a_loop_without_drafts_opens_nothing() -> None:
    run = complete(requests(5, drafts=False), settings(), **PRICED)
    assert not run.drafter.calls


def test_release_forgets_holds_and_windows_on_both_sides() -> None:
    drafted, target, drafter, streams = prepared()
    drafted.draft([], [], [Ask(streams[0], 2)])
    target.failed = True  # a window may be left behind
    drafted.verify([window(streams[0], 2)])
    drafted.draft([], [], [])
    drafted.release(streams[0])
    assert not drafted._holds
    assert not drafted._uncommitted
    assert not target.lanes
    assert not drafter.lanes


def test_a_target_that_cannot_release_does_not_keep_the_drafter_from_it() -> None:
    drafted, target, drafter, streams = prepared()
    target.fail_at = {"release": {1}}
    with pytest.raises(RuntimeError, match="release call 1"):
        drafted.release(streams[0])
    assert not drafter.lanes


def test_a_lane_starts_anew() -> None:
    """Admitted on the lane of a stream that ended with drafts under way, or was cancelled: nothing is left of it."""
    run = DraftedRun(settings(lanes=1), "perfect", **PRICED)
    asks = requests(3, 40)
    run.admit(*asks)
    for _ in range(4):
        run.lanes.round()
    assert run.drafted._holds
    run.lanes.cancel(run.streams["r0"])
    run.finish()
    run.check_serial(*asks[1:])
    assert run.drafter.opened == ["r0", "r1", "r2"]
