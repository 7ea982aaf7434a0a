"""The master oracle: with any drafter, any block size, any company, a reply equals the serial one."""

from __future__ import annotations

import pytest

from tests.lanes.harness import complete, drafter, settings
from tests.stubs import EOS, VOCAB, ScriptedProposer, hashed, looping
from tfjax.lanes.stream import Request


def requests(count: int, max_new: int = 40) -> list[Request]:
    scripts = [hashed, lambda seed, vocab: looping(3 + seed % 5, seed, slip=9)]
    return [
        Request(
            f"r{number}",
            tuple((7 * number + place) % VOCAB for place in range(3 + 5 * number % 23)),
            max_new,
            frozenset({EOS}),
            sampling=scripts[number % 2](number, VOCAB),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("run_ahead", [True, False])
@pytest.mark.parametrize("mode", [*ScriptedProposer.MODES, "copy"])
@pytest.mark.parametrize("block", range(1, 17))
def test_drafted_equals_serial(mode: str, block: int, run_ahead: bool) -> None:
    for company in (1, 2, 8):
        numbers = settings(first_width=block, run_ahead=run_ahead)
        complete(requests(company), numbers, None if mode == "copy" else drafter(mode))
