from __future__ import annotations

from typing import Any

import pytest

from benchmarks.goals import programs
from benchmarks.goals.programs import LANES, abstract_start
from benchmarks.windows import llama_of
from tfjax.engine.kernel_choice import Kernels
from tfjax.kernels.routes import Route
from tfjax.kernels.specs import TINY

CONFIG = llama_of(TINY, 2)


def test_a_target_alone_has_one_program_for_each_bucket() -> None:
    start = abstract_start(CONFIG, "auto", drafter=False)
    assert {name: len(found) for name, found in start.programs.items()} == {"target": 10}
    assert not start.kernels.stacked


def test_the_draw_goes_by_the_models_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Kernels(Route.PALLAS_GPU, "a test", stacked=True)
    monkeypatch.setattr(programs, "choose_kernels", lambda *_: device)
    program: Any = abstract_start(CONFIG, "auto", drafter=False).programs["target"][-1]
    assert program.func.__self__.route is Route.PALLAS_GPU


@pytest.mark.slow
def test_a_drafter_adds_its_own_and_all_compile_without_weights() -> None:
    start = abstract_start(CONFIG, "auto", drafter=True)
    holds = 3 * 3  # on a CPU blocks of two, four and all drafts, for one stream, two and four
    absorbs = 7
    assert LANES == 4
    assert {name: len(found) for name, found in start.programs.items()} == {"target": 10, "drafter": holds + absorbs}
    for found, places in ((start.programs["target"], (0,)), (start.programs["drafter"], (0, holds))):
        for place in places:
            found[place]()()
