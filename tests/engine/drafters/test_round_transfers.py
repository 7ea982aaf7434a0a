"""What a steady round with drafts that stay on the device moves between host and device: its inputs and its results."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import jax.numpy as jnp
import numpy as np
import pytest

from tests.engine.drafters.counted_transfers import counted_transfers
from tests.engine.drafters.pair import PROMPTS
from tests.engine.drafters.spark_stage import MEMORY, Stage
from tests.engine.drafters.test_drafted_engine import CHEAP, KINDS
from tests.lanes.test_host_time import Deaf
from tests.models.tiny import TINY
from tfjax.engine.compiles import compiles
from tfjax.engine.drafters.starting import hold_on_device
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.loop import Lanes
from tfjax.lanes.proposer import Silent
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request

ROUNDS = 20
AHEAD = ["hold takes 1", "verify takes 2", "absorb takes 0"]
"""Rows and asks of the next block; tokens, with stand-ins for those on the device, and rows."""
STEADY = [*AHEAD, "read 32", "read 32"]
"""All of the next round is queued before this one is read: drawn tokens, and the drafts that were shown.
Drafts are never read by themselves."""


@pytest.fixture
def holding_stage(perfect_stage: Stage) -> Iterator[Stage]:
    """Every draft lands, and stays on the device until it is verified."""
    stage = perfect_stage
    stage.target.window_ms = {4: 5.0, 32: 5.5}
    stage.drafter = stage.fresh()
    stage.drafter.hold_ms = CHEAP
    hold_on_device(stage.drafter)
    yield stage
    stage.target.held = None


def lanes_of(stage: Stage) -> Lanes:
    """The loop with nobody in it yet. A stream gets all of its pages at the start."""
    settings = Settings(
        lanes=MEMORY.lanes, context=MEMORY.context, pages=MEMORY.pages, page_rows=PAGE_ROWS, vocab_size=TINY.vocab,
        draft_tokens=8, first_width=3, growth_rows=MEMORY.context,
    )  # fmt: skip
    ticks = count()
    backend = Drafted(stage.target, stage.drafter, TINY.vocab)
    return Lanes(backend, lambda: next(ticks) / 1000, settings, Deaf(), lambda request: Silent())


def drafting_lanes(stage: Stage, prompts: int, kind: str, plain: int = -1) -> Lanes:
    """The loop with replies under way that all draft, but for number `plain`."""
    lanes = lanes_of(stage)
    for number, prompt in enumerate(PROMPTS[:prompts]):
        most, drafts = MEMORY.context - len(prompt), number != plain
        lanes.admit(Request(f"r{number}", prompt, most, sampling=KINDS[kind], drafts=drafts))
    for _ in range(2 * prompts + 4):
        lanes.round()
    return lanes


@pytest.mark.parametrize("kind", ["greedy", "penalised"])
@pytest.mark.parametrize(("streams", "plain"), [(1, -1), (4, -1), (4, 2)])
def test_twenty_rounds_move_their_inputs_and_results_alone(
    holding_stage: Stage, streams: int, plain: int, kind: str
) -> None:
    stage = holding_stage
    lanes = drafting_lanes(stage, streams, kind, plain)
    before = compiles()
    with counted_transfers(stage.target, stage.drafter) as log:
        lanes.round()  # What it reads was queued before reads are counted.
        log.clear()
        for number in range(ROUNDS):
            lanes.round()
            assert log == STEADY, number
            log.clear()
    assert compiles() == before
    assert lanes.running == streams


def test_a_read_of_drafts_and_an_array_of_the_host_are_seen(
    holding_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter tells a round that waits for its drafts, and refuses what no program was given."""
    stage = holding_stage
    lanes = drafting_lanes(stage, 1, "greedy")
    hold = stage.drafter.hold
    monkeypatch.setattr(stage.drafter, "hold", lambda asks: (stage.drafter.read([held := hold(asks)]), held)[1])
    with counted_transfers(stage.target, stage.drafter) as log:
        lanes.round()
        log.clear()
        lanes.round()
        place = STEADY.index("hold takes 1") + 1
        assert log == [*STEADY[:place], "read 4x5", "read 4x5", *STEADY[place:]]
        with pytest.raises(Exception, match="Disallowed host-to-device transfer"):
            jnp.asarray(np.zeros(3))
