"""The oracle itself is tried: each planted fault must turn it red."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.lanes.harness import Run, complete, drafter, settings
from tests.stubs import EOS, VOCAB, BrokenContractError, hashed, listed, looping, teasing
from tfjax.lanes import ahead, asking, cuts, loop, outcome
from tfjax.lanes.copy_drafts import CopyDrafts
from tfjax.lanes.memory import Memory
from tfjax.lanes.pages import PagePool
from tfjax.lanes.proposer import CheckedProposer, Proposal
from tfjax.lanes.stream import Request, Stream
from tfjax.lanes.suffix_index import Match, SuffixIndex
from tfjax.lanes.window import Window

Plant = Callable[[pytest.MonkeyPatch], None]


def oracle() -> None:
    """A cut through the master oracle that every planted fault below has to break."""
    scripts = [hashed(1), looping(3, 2, slip=9), listed([1, 2, 3, 4, EOS, 5, 6]), looping(5, 4, slip=13)]
    asks = [
        Request(f"r{number}", tuple(range(number, number + 6)), 20 + number, frozenset({EOS}), sampling=script)
        for number, script in enumerate(scripts)
    ]
    for mode in ("perfect", "mixed", "hostile", "wrong"):
        complete(asks, settings(first_width=6), drafter(mode))
        complete(asks, settings(first_width=6, pages=30, growth_rows=1), drafter(mode))
    complete(asks[:1], settings(), drafter("empty"))
    for script in (looping(4, 1, slip=11), teasing(4)):
        loops = Request("r", tuple(range(9)), 200, sampling=script, least_match=4)
        runs = [complete([loops], settings(run_ahead=ahead)) for ahead in (True, False)]
        assert runs[0].backend.draft_windows == runs[1].backend.draft_windows
    cancelled = Run(settings())
    cancelled.admit(Request("r", (1, 2), 99, sampling=hashed(2), drafts=False))
    cancelled.lanes.round()
    cancelled.lanes.round()
    cancelled.lanes.cancel(cancelled.streams["r"])
    cancelled.finish(2)


def one_row_too_many(plant: pytest.MonkeyPatch) -> None:
    def accept(window: Window, draws: Sequence[int], held: Sequence[int]) -> list[int]:
        matched = sum(draft == draw for draft, draw in zip(window.drafts, draws, strict=False))
        return list(draws[: min(matched + 2, window.rows)])

    plant.setattr(outcome, "accept", accept)


def drafts_kept_unseen(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(outcome, "accept", lambda window, draws, held: [*window.drafts, *held, draws[-1]])


def no_cut(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(
        outcome, "cut", lambda stream, tokens: (len(tokens), "length" if stream.left <= len(tokens) else None)
    )


def only_the_last_token_is_looked_at(plant: pytest.MonkeyPatch) -> None:
    def cut(stream: Stream, tokens: Sequence[int]) -> tuple[int, str | None]:
        count, reason = cuts.cut(stream, tokens)
        return (len(tokens), None) if reason == "stop" and count < len(tokens) else (count, reason)

    plant.setattr(outcome, "cut", cut)


def stop_tokens_are_no_drafts(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(
        outcome, "accept", lambda window, draws: [min(draw, EOS - 1) for draw in draws[: 1 + len(window.drafts) // 2]]
    )


def a_page_is_handed_out_twice(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(PagePool, "take", lambda pool, count: list(range(count)))
    plant.setattr(PagePool, "give_back", lambda pool, pages: None)


def pages_are_never_given_back(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Memory, "end", lambda memory, stream: None)


def growth_is_forgotten(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Memory, "secure", lambda memory, streams: True)


def committed_pages_are_given_back(plant: pytest.MonkeyPatch) -> None:
    real = Memory.secure

    def secure(memory: Memory, streams: Sequence[Stream]) -> bool:
        if len(streams) > 1 and streams[-1].cache_length > 8:
            memory.pool.give_back(streams[-1].pages[:1])
            streams[-1].pages[:1] = memory.pool.take(2)[1:]
        return real(memory, streams)

    plant.setattr(Memory, "secure", secure)


def hostile_drafts_pass(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(CheckedProposer, "_possible", lambda checked, proposal, most: proposal)


def one_draft_too_many(plant: pytest.MonkeyPatch) -> None:
    def propose(checked: CheckedProposer, most: int) -> Proposal:
        return checked._proposer.propose(most + 1)

    plant.setattr(CheckedProposer, "propose", propose)
    plant.setattr(Memory, "rows", lambda memory, stream: 1000)


def running_ahead_with_drafts_possible(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(CopyDrafts, "pass_unread", lambda drafts: drafts._index.longest().bound < drafts._least_match)


def running_ahead_is_no_ask(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(
        CopyDrafts,
        "pass_unread",
        lambda drafts: bool(drafts._silent_asks) or drafts._index.longest().bound + 1 < drafts._least_match,
    )


def no_bound_on_unseen_matches(plant: pytest.MonkeyPatch) -> None:
    real = SuffixIndex.longest

    def longest(index: SuffixIndex) -> Match:
        match = real(index)
        return Match(match.end, match.length, 0)

    plant.setattr(SuffixIndex, "longest", longest)


def running_past_the_end(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(ahead, "_goes_on", lambda window: True)
    plant.setattr(asking.Asking, "may_pass", lambda self, streams: True)


def a_queued_window_is_not_dropped(plant: pytest.MonkeyPatch) -> None:
    real = loop.Lanes._end

    def end(lanes: loop.Lanes, stream: Stream, reason: str, error: str | None = None) -> None:
        lanes._flights.next = None
        real(lanes, stream, reason, error)

    plant.setattr(loop.Lanes, "_end", end)


def the_last_chunk_is_skipped(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(loop.Lanes, "_fill_prompt", lambda lanes: None)


PLANTS: list[Plant] = [
    one_row_too_many,
    drafts_kept_unseen,
    no_cut,
    only_the_last_token_is_looked_at,
    stop_tokens_are_no_drafts,
    a_page_is_handed_out_twice,
    pages_are_never_given_back,
    growth_is_forgotten,
    committed_pages_are_given_back,
    hostile_drafts_pass,
    one_draft_too_many,
    running_ahead_with_drafts_possible,
    running_ahead_is_no_ask,
    no_bound_on_unseen_matches,
    running_past_the_end,
    a_queued_window_is_not_dropped,
    the_last_chunk_is_skipped,
]


def test_the_oracle_is_green_without_a_fault() -> None:
    oracle()


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_turns_the_oracle_red(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, BrokenContractError, ValueError, IndexError, TypeError)):
        oracle()


def test_the_backend_sees_a_row_of_another_lane() -> None:
    """A page written by somebody else changes what is drawn, although no call was wrong."""
    run = Run(settings(), drafter("mixed"))
    asks = [Request(f"r{number}", (1, 2, 3, number), 20, sampling=hashed(number)) for number in range(2)]
    run.admit(*asks)
    for _ in range(4):
        run.lanes.round()
    page = run.streams["r0"].pages[0]
    run.backend.cells[page][1] = VOCAB - 1
    run.finish()
    with pytest.raises(AssertionError):
        run.check_serial(asks[0])
    run.check_serial(asks[1])
