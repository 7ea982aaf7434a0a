"""The master oracle: with any drafter, any block size, any company, a reply equals the serial one.

A token counts where its round verified at least one draft.
"""

from __future__ import annotations

import pytest

from tests.lanes.harness import Run, complete, drafter, settings
from tests.stubs import EOS, VOCAB, ScriptedProposer, hashed, looping
from tfjax.lanes.stream import Request

DRAFTLESS = {"empty"}
NEVER_REJECTED = {"perfect", "short"}


def requests(count: int, max_new: int = 40, drafts: bool = True) -> list[Request]:
    scripts = [hashed, lambda seed, vocab: looping(3 + seed % 5, seed, slip=9)]
    return [
        Request(
            f"r{number}",
            tuple((7 * number + place) % VOCAB for place in range(3 + 5 * number % 23)),
            max_new,
            frozenset({EOS}) if number % 3 else frozenset(),
            drafts,
            scripts[number % 2](number, VOCAB),
        )
        for number in range(count)
    ]


def counting(run: Run) -> int:
    """Tokens of rounds with drafts, at least: one per such round and the accepted drafts."""
    return sum(stream.counts.drafted_rounds + stream.counts.accepted for stream in run.streams.values())


def test_without_drafts_the_loop_equals_the_serial_oracle() -> None:
    for company in (1, 2, 8):
        run = complete(requests(company, drafts=False), settings(), drafter("perfect"))
        assert counting(run) == 0


@pytest.mark.parametrize("run_ahead", [True, False])
@pytest.mark.parametrize("mode", [*ScriptedProposer.MODES, "copy"])
@pytest.mark.parametrize("block", range(1, 17))
def test_drafted_equals_serial(mode: str, block: int, run_ahead: bool) -> None:
    runs = [
        complete(
            requests(company),
            settings(first_width=block, run_ahead=run_ahead),
            None if mode == "copy" else drafter(mode),
        )
        for company in (1, 2, 8)
    ]
    rejected = sum(stream.counts.drafted - stream.counts.accepted for run in runs for stream in run.streams.values())
    if mode in DRAFTLESS:
        assert all(counting(run) == 0 for run in runs)
    else:
        assert sum(map(counting, runs)) >= 50
        assert bool(rejected) or mode in NEVER_REJECTED or (mode == "mixed" and block <= 2)


def test_thousands_of_tokens_count() -> None:
    total = 0
    for mode in ("perfect", "mixed", "wrong", "garbage", "hostile"):
        total += counting(complete(requests(8, max_new=150), settings(first_width=4), drafter(mode)))
    assert total >= 4000


@pytest.mark.parametrize("mode", ScriptedProposer.MODES)
def test_company_that_comes_and_goes(mode: str) -> None:
    """Streams join, leave and are cancelled while others decode."""
    run = Run(settings(lanes=4, first_width=5), drafter(mode))
    asks = requests(12)
    for number, ask in enumerate(asks):
        run.admit(ask)
        for _ in range(1 + 3 * (number % 4)):
            run.lanes.round()
    run.lanes.cancel(run.streams["r11"])
    run.finish()
    run.check_serial(*asks[:11])
