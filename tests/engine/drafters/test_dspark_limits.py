"""Where DSpark has fewer drafts, or none: the ends of pages and contexts, bad numbers, failed calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.engine.drafters.spark_pair import (
    BLOCK,
)
from tests.engine.drafters.spark_stage import LONG, Stage
from tfjax.engine.drafters import dspark
from tfjax.engine.drafters.block_step import Told
from tfjax.engine.drafters.drawing import Drafts
from tfjax.engine.drafters.dspark import Holding, _guesses
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.drafter import Ask

# Where there are fewer drafts, or none.


@pytest.mark.parametrize("free", [5, 4, 2, 1])
def test_drafts_stay_in_the_streams_pages(stage: Stage, free: int) -> None:
    """Rows of the block that would lie past the last page are computed for nobody, seen by none and overwrite none."""
    stream, other = stage.on_lane(0, LONG[: PAGE_ROWS - free]), stage.on_lane(1)
    stream.pages = stream.pages[:1]
    pair = stage.started(stream, other)
    said = [stage.says(stream, free).tokens, stage.says(other).tokens]
    assert [list(tokens) for tokens in pair.draft([stream, other], [BLOCK, BLOCK])] == said
    assert stage.knows(stage.drafter, stream)
    pair.end([stream, other])


def test_drafts_stay_in_the_drafters_context(stage: Stage) -> None:
    drafter = stage.drafter
    stream = stage.on_lane(0)
    pair = stage.started(stream)
    known = len(stream.context)
    for left, slots, drafts in ((BLOCK, BLOCK, BLOCK), (3, 4, 3), (1, 1, 1), (0, 0, 0), (-5, 0, 0)):
        drafter.context = known + left
        ((guess,),) = drafter.read([drafter.hold([Ask(stream, BLOCK)])])
        assert len(guess.tokens) == drafts
        if drafts:
            said = stage.says(stream, slots)
            assert list(guess.tokens) == said.tokens[:drafts]
            assert np.allclose(guess.confidences, said.confidences[:drafts], atol=1e-4), "the context's end is seen"
    pair.end([stream])


def test_a_block_lies_in_a_page_that_is_new(stage: Stage) -> None:
    """The target has not seen the pages yet when the drafter writes there."""
    streams = [stage.on_lane(0, LONG[: PAGE_ROWS - 2]), stage.on_lane(1, LONG[: 2 * PAGE_ROWS - 2])]
    pages = [stream.pages for stream in streams]
    for number, stream in enumerate(streams, 1):
        stream.pages = stream.pages[:number]
    pair = stage.started(*streams)
    for stream, own in zip(streams, pages, strict=True):
        stream.pages = own
    (guesses,) = stage.drafter.read([stage.drafter.hold([Ask(stream, BLOCK) for stream in streams])])
    for stream, guess in zip(streams, guesses, strict=True):
        said = stage.says(stream)
        assert list(guess.tokens) == said.tokens
        assert np.allclose(guess.confidences, said.confidences, atol=1e-5)
    pair.end(streams)


@pytest.mark.parametrize(
    ("tokens", "sure", "sound"),
    [
        ((1, 2, 3), (0.5, 0.4, 0.3), 3),
        ((1, -1, 3), (0.5,) * 3, 1),
        ((1, 2, 64), (0.5,) * 3, 2),
        ((1, 2, 3), (0.5, np.nan, 0.5), 1),
    ],
)
def test_what_is_read_up_to_the_first_that_is_no_draft(
    tokens: tuple[int, ...], sure: tuple[float, ...], sound: int
) -> None:
    drafts: Any = Drafts(np.array([tokens, (7, 7, 7)]), np.array([sure, (0.5,) * 3], np.float32))
    block: Any = SimpleNamespace(depth=3)
    first, nothing, last = _guesses(Holding((block, None, block), drafts), drafts, 64)
    assert (list(first.tokens), len(first.confidences)) == (list(tokens[:sound]), sound)
    assert (list(nothing.tokens), list(last.tokens)) == ([], [7, 7, 7])


def test_numbers_that_are_not_finite_are_no_drafts(stage: Stage) -> None:
    """A module whose third slot breaks: what was drafted before it stands."""
    _, state = nnx.split(stage.spark.module)
    broken = nnx.merge(nnx.graphdef(stage.spark.module), jax.tree.map(jnp.copy, state))
    broken.markov.w1[...] = broken.markov.w1[...].at[:].set(jnp.nan)
    drafter = stage.fresh(spark=stage.spark, module=broken)
    stream = stage.on_lane(0)
    pair = stage.started(stream, drafter=drafter)
    assert pair.draft([stream], [BLOCK]) == [()]
    said = stage.says(stream).tokens
    whole = stage.spark.module.markov.w1[...]
    broken.markov.w1[...] = whole.at[said[1]].set(jnp.nan)
    drafter = stage.fresh(spark=stage.spark, module=broken)
    stage.target.release(stream)
    stream = stage.on_lane(0)
    pair = stage.started(stream, drafter=drafter)
    assert pair.draft([stream], [BLOCK]) == [tuple(said[:2])]
    pair.end([stream])


def test_a_nan_of_one_stream_reaches_no_other(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    absorb = stage.drafter.step.absorb

    def spoiled(cache: Any, told: Told, table: Any) -> Any:
        bad = (told.places[0] == 0)[:, None]
        return absorb(cache, told._replace(features=jnp.where(bad, jnp.nan, told.features)), table)

    monkeypatch.setattr(stage.drafter.step, "absorb", spoiled)
    streams = [stage.on_lane(0), stage.on_lane(1)]
    pair = stage.started(*streams)
    said = stage.says(streams[1]).tokens
    assert pair.draft(streams, [BLOCK, BLOCK]) == [(), tuple(said)]
    pair.end(streams)


@pytest.mark.parametrize("call", ["absorb", "hold"])
def test_a_failed_call_costs_what_was_known(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    streams = [stage.on_lane(0), stage.on_lane(1, LONG[:66])]
    pair = stage.started(*streams)
    pair.round(streams, [2, 2])

    def fail(*arguments: Any) -> Any:
        for array in jax.tree.leaves(arguments[call == "hold"]):
            array.delete()
        raise RuntimeError("out of luck")

    with monkeypatch.context() as patch:
        patch.setattr(stage.drafter.step, call, fail)
        if call == "absorb":
            pair.round(streams, [0, 0])
            stage.drafter._catch_up()
            assert "spark lost its context: out of luck" in caplog.text
        else:
            with pytest.raises(RuntimeError, match="out of luck"):
                stage.drafter.hold([Ask(streams[0], 2)])
    assert not stage.drafter.can_draft(streams[0])
    assert pair.draft(streams, [2, 2]) == [(), ()]
    while len(streams[1].context) < 2 * PAGE_ROWS + 4:
        pair.round(streams, [0, 3])
    assert stage.drafter.can_draft(streams[1])
    said = stage.says(streams[1], first_page=2)
    assert pair.draft(streams[1:], [BLOCK]) == [tuple(said.tokens)]
    pair.end(streams)


def test_a_failed_transfer_starts_over(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stage.on_lane(0)
    pair = stage.started(stream)
    ticket = stage.drafter.hold([Ask(stream, 2)])

    def fail(_: Any) -> Any:
        raise RuntimeError("out of luck")

    with monkeypatch.context() as patch:
        patch.setattr(dspark, "jax", SimpleNamespace(device_get=fail))
        with pytest.raises(RuntimeError, match="out of luck"):
            stage.drafter.read([ticket])
    assert not stage.drafter.can_draft(stream)
    pair.end([stream])


def test_all_tickets_come_in_one_transfer(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [stage.on_lane(0), stage.on_lane(2)]
    pair = stage.started(*streams)
    separate = [pair.draft([stream], [3])[0] for stream in streams]
    transfers = []

    def device_get(arrays: Any) -> Any:
        transfers.append(arrays)
        return jax.device_get(arrays)

    tickets = [stage.drafter.hold([Ask(stream, 3)]) for stream in streams]
    monkeypatch.setattr(dspark, "jax", SimpleNamespace(device_get=device_get))
    read = stage.drafter.read(tickets)
    assert [tuple(guesses[0].tokens) for guesses in read] == separate
    assert len(transfers) == 1
    pair.end(streams)
