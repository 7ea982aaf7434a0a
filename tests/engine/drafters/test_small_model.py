from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.engine.drafters.pair import (
    DEPTH,
    PROMPTS,
    Pair,
    another,
    cached_rows,
    drafting,
    loaded,
    memory_of,
    stream_on,
)
from tests.models.tiny import TINY, Part, Streams
from tests.row_invariance import bits
from tfjax.engine.compiles import compiles
from tfjax.engine.drafters import small_model
from tfjax.engine.drafters.draft_step import DraftStep
from tfjax.engine.drafters.small_model import SmallModel
from tfjax.engine.target import TargetBackend
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.drafter import Ask, Drafter
from tfjax.lanes.stream import Stream
from tfjax.lanes.window import Window

MEMORY = memory_of()
RULES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.0, "seed": 7},
    "filtered": {"temperature": 1.3, "seed": 1 << 40, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
    "penalised": {
        "temperature": 0.8,
        "seed": 5,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.3,
        "repetition_penalty": 1.2,
        "logit_bias": ((3, 4.0), (5, -4.0)),
    },
    "stops banned": {"min_tokens": 15, "stop_ids": tuple(range(60))},
}


def on_lane(lane: int, **rules: Any) -> Stream:
    return stream_on(lane, PROMPTS[lane], memory=MEMORY, **rules)


def started(target: TargetBackend, drafter: SmallModel, streams: Sequence[Stream]) -> Pair:
    pair = Pair(target, drafter)
    for stream in streams:
        pair.start(stream)
    return pair


def other_weights(perfect: SmallModel) -> SmallModel:
    return another(perfect, drafting(loaded(seed=4)))


def test_fulfils_the_protocol(perfect: SmallModel) -> None:
    drafter: Drafter = perfect
    assert (drafter.depth, drafter.context, drafter.stands_aside) == (DEPTH, TINY.context, True)


# A drafter with the target's weights.


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("lanes", [(0,), (2, 0), (0, 1, 2)])
def test_the_targets_own_weights_land_every_draft(
    target: TargetBackend, perfect: SmallModel, lanes: Sequence[int], rules: dict[str, Any]
) -> None:
    streams = [on_lane(lane, **rules) for lane in lanes]
    pair = started(target, perfect, streams)
    for turn in range(5):
        pair.round(streams, [(3 * turn + 2 * lane) % DEPTH + 1 for lane in lanes])
    assert pair.all_landed
    pair.end(streams)


def test_streams_of_different_rules_share_a_hold(target: TargetBackend, perfect: SmallModel) -> None:
    streams = [on_lane(lane, **rules) for lane, rules in enumerate(list(RULES.values())[2:])]
    pair = started(target, perfect, streams)
    for turn in range(4):
        pair.round(streams, [turn + 1, 5, DEPTH - turn])
    assert pair.all_landed
    pair.end(streams)


@pytest.mark.parametrize("kept", range(1, DEPTH + 2))
def test_what_is_known_after_every_count_of_kept_rows(target: TargetBackend, perfect: SmallModel, kept: int) -> None:
    stream = on_lane(1, temperature=1.0)
    pair = started(target, perfect, [stream])
    depth = 5
    before = len(stream.context)
    pair.round([stream], [depth], keep=kept)
    known = perfect._lanes[1].known
    assert known == before - 1 + min(kept, depth)
    committed = cached_rows(target.state, stream, known)
    assert all(
        (bits(own) == bits(rows)).all()
        for own, rows in zip(cached_rows(perfect.state, stream, known), committed, strict=True)
    )
    pair.round([stream], [depth])
    assert pair.landed[stream.request.id] == [depth, depth]
    pair.end([stream])


@pytest.mark.parametrize("plain", [1, 2, 3, 20])
def test_plain_rounds_are_caught_up(target: TargetBackend, perfect: SmallModel, plain: int) -> None:
    streams = [on_lane(0), on_lane(2)]
    pair = started(target, perfect, streams)
    pair.round(streams, [2, 2])
    known = perfect._lanes[0].known
    for _ in range(plain):
        pair.round(streams, [0, 3])
    assert perfect._lanes[0].known == known, "a stream that does not draft costs nothing"
    pair.round(streams, [4, 4])
    assert pair.all_landed
    pair.end(streams)


def test_a_stream_of_which_no_row_is_known_is_caught_up(target: TargetBackend, perfect: SmallModel) -> None:
    stream = on_lane(1)
    pair = Pair(target, perfect)
    pair.start(stream, absorb=False)
    assert perfect._lanes[1].known == 0
    pair.round([stream], [4])
    assert pair.all_landed
    pair.end([stream])


def test_rows_before_a_reused_prefix_are_computed(perfect: SmallModel, target: TargetBackend) -> None:
    stream = on_lane(1)
    pair = Pair(target, perfect)
    pair.start(stream, absorb=False)
    perfect.absorb_prompt(stream, 64, 70)
    assert perfect._lanes[1].known == 70
    pair.round([stream], [4])
    assert pair.all_landed
    pair.end([stream])


def test_a_hold_that_was_not_verified_leaves_the_pending_token_known(
    target: TargetBackend, perfect: SmallModel
) -> None:
    stream = on_lane(0)
    pair = started(target, perfect, [stream])
    perfect.hold([Ask(stream, 4)])
    at = len(stream.context) - 1
    perfect.absorb(Window(stream, at, stream.context[at], (1, 2, 3)), 3)
    assert perfect._lanes[0].known == at + 1
    perfect.absorb(Window(stream, at + 1, 1, held=2), 3)
    assert perfect._lanes[0].known == at + 1, "held drafts of a window that no hold was made for are fillers"
    pair.round([stream], [4])
    assert pair.all_landed
    pair.end([stream])


def test_a_hold_may_be_repeated(target: TargetBackend, perfect: SmallModel) -> None:
    stream = on_lane(0, temperature=1.0, seed=3)
    pair = started(target, perfect, [stream])
    assert pair.draft([stream], [4]) == pair.draft([stream], [4])
    pair.end([stream])


# Another model.


def test_lanes_do_not_disturb_each_other(target: TargetBackend, perfect: SmallModel) -> None:
    alone: dict[int, Any] = {}
    for lane in range(3):
        stream = on_lane(lane, temperature=1.0)
        pair = started(target, other_weights(perfect), [stream])
        for turn in range(5):
            pair.round([stream], [(turn + lane) % 4 + 1])
        alone[lane] = pair.drafted[stream.request.id]
        pair.end([stream])
    streams = [on_lane(lane, temperature=1.0) for lane in range(3)]
    pair = started(target, other_weights(perfect), streams)
    for turn in range(5):
        pair.round(streams, [(turn + lane) % 4 + 1 for lane in range(3)])
    assert {lane: pair.drafted[stream.request.id] for lane, stream in enumerate(streams)} == alone
    assert not pair.all_landed
    pair.end(streams)


def test_a_lane_starts_anew(target: TargetBackend, perfect: SmallModel) -> None:
    rules = RULES["penalised"]
    fresh = other_weights(perfect)
    streams = [stream_on(0, PROMPTS[1], memory=MEMORY, temperature=1.0), on_lane(0, **rules), on_lane(0, **rules)]
    first = started(target, fresh, streams[:1])
    first.round(streams[:1], [4])
    first.end(streams[:1])
    found = []
    for drafter, stream in ((fresh, streams[1]), (other_weights(perfect), streams[2])):
        pair = started(target, drafter, [stream])
        pair.round([stream], [4])
        found.append(pair.drafted)
        pair.end([stream])
    assert found[0] == found[1]


def test_a_lanes_new_pages_are_used(target: TargetBackend, perfect: SmallModel) -> None:
    """A stream may take a lane with other pages than the lane's last stream had, or the same ones in another order."""
    for pages in ([0, 1, 2, 3], [3, 2, 1, 0], [8, 0, 5, 1]):
        stream = stream_on(0, PROMPTS[1], memory=MEMORY, pages=pages)
        pair = started(target, perfect, [stream])
        pair.round([stream], [4])
        assert pair.all_landed
        pair.end([stream])


def test_what_follows_a_release_is_not_counted(perfect: SmallModel) -> None:
    stream = on_lane(0)
    assert not perfect.can_draft(stream)
    perfect.open(stream)
    assert perfect.can_draft(stream)
    perfect.release(stream)
    perfect.release(stream)
    assert not perfect.can_draft(stream)


# Limits.


def test_drafting_ends_at_the_drafters_context(target: TargetBackend, perfect: SmallModel) -> None:
    model = drafting(loaded(replace(TINY, context=78)))
    drafter = another(perfect, model)
    assert drafter.context == 78
    stream = on_lane(1)
    pair = started(target, drafter, [stream])
    assert [len(pair.draft([stream], [DEPTH])[0])] == [7], "71 tokens of context"
    for _ in range(6):
        pair.round([stream], [2])
    assert [len(tokens) for tokens in pair.drafted["lane1"]] == [2, 2, 1]
    assert pair.all_landed
    assert len(stream.context) == 82
    pair.end([stream])


def test_a_prompt_longer_than_the_drafters_context(target: TargetBackend, perfect: SmallModel) -> None:
    drafter = another(perfect, drafting(loaded(replace(TINY, context=40))))
    long, short = on_lane(1), on_lane(0)
    pair = started(target, drafter, [long, short])
    assert drafter._lanes[1].known == 40
    pair.round([long, short], [4, 4])
    assert pair.drafted[long.request.id] == []
    assert pair.landed[short.request.id] == [4]
    pair.end([long, short])


def test_drafts_stay_within_the_streams_pages(target: TargetBackend, perfect: SmallModel) -> None:
    prompt = tuple(np.random.default_rng(9).integers(0, TINY.vocab, PAGE_ROWS - 3).tolist())
    stream = stream_on(0, prompt, memory=MEMORY, pages=[5])
    pair = started(target, perfect, [stream])
    before = [np.asarray(pool) for pool in jax.tree.leaves(perfect.state.cache)]
    (drafts,) = pair.draft([stream], [DEPTH])
    assert len(drafts) == 3, "62 tokens are there; the row of the third draft is not computed"
    after = [np.asarray(pool) for pool in jax.tree.leaves(perfect.state.cache)]
    pages = np.delete(np.arange(len(before[0])), [0, 6])
    assert all((bits(one[pages]) == bits(two[pages])).all() for one, two in zip(before, after, strict=True))
    pair.end([stream])


def test_rows_in_a_page_that_was_given_back_are_computed_again(target: TargetBackend, perfect: SmallModel) -> None:
    """The drafter writes the pending token's row before the target does, here as the first of a page."""
    prompt = tuple(np.random.default_rng(9).integers(0, TINY.vocab, PAGE_ROWS).tolist())
    stream = stream_on(0, prompt, memory=MEMORY, pages=[5, 6, 8])
    pair = started(target, perfect, [stream])
    drafts = pair.draft([stream], [4])
    stream.pages[1:] = [7]
    pair.verify([stream], drafts)
    assert perfect._lanes[0].known == PAGE_ROWS + 4
    pair.round([stream], [4])
    assert pair.landed == {"lane0": [4, 4]}
    known = perfect._lanes[0].known
    rows = zip(cached_rows(perfect.state, stream, known), cached_rows(target.state, stream, known), strict=True)
    assert all((bits(own) == bits(targets)).all() for own, targets in rows)
    pair.end([stream])


def test_a_stream_at_its_end_is_not_drafted_further_because_another_is(
    target: TargetBackend, perfect: SmallModel
) -> None:
    """Rows past the last page would fall on the lane's own earlier ones."""
    prompt = tuple(np.random.default_rng(9).integers(0, TINY.vocab, MEMORY.context - 4).tolist())
    streams = [stream_on(0, prompt, memory=MEMORY), on_lane(1)]
    pair = started(target, perfect, streams)
    pair.round(streams, [DEPTH, DEPTH])
    assert pair.landed == {"lane0": [3], "lane1": [DEPTH]}
    known = perfect._lanes[0].known
    assert known == MEMORY.context - 1
    rows = zip(cached_rows(perfect.state, streams[0], known), cached_rows(target.state, streams[0], known), strict=True)
    assert all((bits(own) == bits(targets)).all() for own, targets in rows)
    pair.end(streams)


def test_a_reduced_vocabulary_lands_what_it_knows(target: TargetBackend, perfect: SmallModel) -> None:
    """A head of some of the target's rows draws what the target draws, where it can."""
    ids = np.random.default_rng(0).permutation(TINY.vocab)[:40]
    model = loaded(replace(TINY, tied=False))
    module: Any = model.module
    own: Any = loaded().module
    module.embedding, module.layers, module.norm = own.embedding, own.layers, own.norm
    module.head = nnx.Param(own.embedding[...][ids])
    drafter = SmallModel(
        drafting(model, ids=ids.tolist()), DraftStep(module, jnp.asarray(ids, jnp.int32)), perfect.plan, MEMORY
    )
    bucket = drafter.plan.hold_bucket(1)
    drafter.step.prepare_holding(bucket, drafter.state, drafter.page_table)()
    drafter.step.prepare_absorbing(drafter.plan.absorbs[0], drafter.state, drafter.page_table)()
    known = 0
    for rules in ({}, RULES["sampled"], RULES["penalised"], {"min_tokens": 50, "stop_ids": tuple(ids[:20].tolist())}):
        stream = on_lane(0, **rules)
        pair = started(target, drafter, [stream])
        for _ in range(12):
            at = len(stream.context)
            pair.round([stream], [1])
            landed = pair.landed["lane0"][-1]
            assert set(pair.drafted["lane0"][-1]) <= set(ids.tolist())
            assert landed == (stream.context[at] in ids)
            known += landed
        pair.end([stream])
    assert known > 10


# Trouble.


def test_numbers_that_are_not_finite_give_no_drafts(target: TargetBackend, perfect: SmallModel) -> None:
    model = loaded()
    module: Any = model.module
    module.norm.weight[...] = module.norm.weight[...].at[0].set(jnp.nan)
    drafter = another(perfect, drafting(model))
    stream = on_lane(0)
    pair = started(target, drafter, [stream])
    at = len(stream.context) - 1
    assert pair.draft([stream], [4]) == [()]
    drafter.absorb(Window(stream, at, stream.context[at], held=4), 3)
    assert drafter._lanes[0].known == at + 1, "kept fillers are not what was drafted"
    pair.end([stream])


def test_ids_beyond_the_targets_are_no_drafts(target: TargetBackend, perfect: SmallModel) -> None:
    drafter = another(perfect, drafting(loaded(), ids=range(TINY.vocab, 2 * TINY.vocab)))
    stream = on_lane(0)
    pair = started(target, drafter, [stream])
    assert pair.draft([stream], [4]) == [()]
    pair.end([stream])


@pytest.mark.parametrize("call", ["absorb", "hold"])
def test_a_failed_call_costs_no_more_than_its_streams(
    target: TargetBackend, perfect: SmallModel, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    rules = RULES["penalised"]
    drafter = another(perfect, drafting(loaded()))
    streams = [on_lane(0, **rules), on_lane(1, **rules)]
    pair = started(target, drafter, streams)
    pair.round(streams, [0, 0])
    pair.round(streams, [0, 0])

    def fail(*arguments: Any) -> Any:
        for array in jax.tree.leaves(arguments[1]):
            array.delete()
        raise RuntimeError("out of luck")

    with monkeypatch.context() as patch:
        patch.setattr(drafter.step, call, fail)
        with pytest.raises(RuntimeError, match="out of luck"):
            drafter.hold([Ask(streams[0], 2)])
    drafter.release(streams[0])
    pair.round(streams[1:], [4])
    assert pair.landed[streams[1].request.id] == [4]
    pair.end(streams)


def test_a_failed_transfer_starts_over(
    target: TargetBackend, perfect: SmallModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = another(perfect, drafting(loaded()))
    stream = on_lane(0)
    pair = started(target, drafter, [stream])
    ticket = drafter.hold([Ask(stream, 2)])

    def fail(_: Any) -> Any:
        raise RuntimeError("out of luck")

    with monkeypatch.context() as patch:
        patch.setattr(small_model, "jax", SimpleNamespace(device_get=fail))
        with pytest.raises(RuntimeError, match="out of luck"):
            drafter.read([ticket])
    assert drafter._lanes[0].known == 0
    pair.round([stream], [4])
    assert pair.all_landed
    pair.end([stream])


def test_all_tickets_come_in_one_transfer(
    target: TargetBackend, perfect: SmallModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [on_lane(0), on_lane(2)]
    pair = started(target, perfect, streams)
    separate = [pair.draft([stream], [3])[0] for stream in streams]
    transfers = []

    def device_get(arrays: Any) -> Any:
        transfers.append(arrays)
        return jax.device_get(arrays)

    tickets = [perfect.hold([Ask(stream, 3)]) for stream in streams]
    monkeypatch.setattr(small_model, "jax", SimpleNamespace(device_get=device_get))
    found = [tuple(guess.tokens) for guesses in perfect.read(tickets) for guess in guesses]
    assert found == separate
    assert len(transfers) == 1
    pair.end(streams)


@pytest.mark.parametrize("rules", [{}, {"temperature": 1.3, "seed": 5}], ids=["greedy", "sampled"])
def test_a_draft_is_as_sure_as_it_is_probable(
    target: TargetBackend, perfect: SmallModel, rules: dict[str, Any]
) -> None:
    streams = [on_lane(1, **rules), on_lane(0, **rules)]
    pair = started(target, perfect, streams)
    (guesses,) = perfect.read([perfect.hold([Ask(stream, 2 + stream.lane) for stream in streams])])
    for stream, guess in zip(streams, guesses, strict=True):
        first = len(stream.context)
        scaled = logits_after([*stream.context, *guess.tokens])[first - 1 : -1] / rules.get("temperature", 1.0)
        probable = np.exp(scaled) / np.exp(scaled).sum(-1, keepdims=True)
        expected = [probable[place, token] for place, token in enumerate(guess.tokens)]
        assert len(expected) == 2 + stream.lane
        assert guess.confidences == pytest.approx(expected, rel=1e-4)
    pair.end(streams)


def logits_after(tokens: Sequence[int]) -> Any:
    """Of the tiny model, row by row."""
    streams = Streams(loaded().module)
    streams.tokens[0, : len(tokens)] = tokens
    streams.forward(128, Part(0, 0, len(tokens)))
    return np.stack([streams.logits[0, position] for position in range(len(tokens))])


def test_steady_state_compiles_nothing(target: TargetBackend, perfect: SmallModel) -> None:
    before = compiles()
    for lanes in ((0,), (0, 1, 2)):
        streams = [on_lane(lane, **RULES["penalised"]) for lane in lanes]
        pair = started(target, perfect, streams)
        for turn in range(3):
            pair.round(streams, [turn + 1] * len(lanes))
            pair.round(streams, [0] * len(lanes))
        pair.end(streams)
    assert compiles() == before


def test_a_failed_allocation_keeps_nothing(perfect: SmallModel, monkeypatch: pytest.MonkeyPatch) -> None:
    model = drafting(loaded())
    step = DraftStep(model.loaded.module, model.ids)
    gc.collect()
    before = len(jax.live_arrays())

    def full(*_: Any) -> Any:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(small_model, "empty_tables", full)
        with pytest.raises(MemoryError, match="no room"):
            SmallModel(model, step, perfect.plan, MEMORY)
    gc.collect()
    assert len(jax.live_arrays()) == before
