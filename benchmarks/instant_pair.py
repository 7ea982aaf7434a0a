"""A served pair whose compiled programs compute nothing, so that what is left of a round is the host's own work.

The programs take and give the same arrays as the real ones. They draw a text by position, which the drafter guesses
right, so that all drafts of every round land.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import count
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp

from benchmarks.exact_pair import TARGET
from tfjax.config import ServeConfig
from tfjax.engine.buckets import kernel_plan, row_invariant_plan
from tfjax.engine.drafters.block_plan import block_plan
from tfjax.engine.drafters.block_step import ASK_FIELDS, BlockStep
from tfjax.engine.drafters.choosing import Choice, choose_drafter
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.drawing import Drafts
from tfjax.engine.drafters.dspark import DSparkDrafter
from tfjax.engine.drafters.starting import hold_on_device
from tfjax.engine.engine import Engine, Served
from tfjax.engine.fitting import fit_both
from tfjax.engine.opening import Opened, loop_settings, open_model
from tfjax.engine.rows_buffer import FIELDS, unpack
from tfjax.engine.shapes import int32
from tfjax.engine.step import Bucket, State, Step, Stepped
from tfjax.engine.target import TargetBackend
from tfjax.engine.unread import Unread, asked, landed, resolved, waiting
from tfjax.kernels.routes import Route
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.proposer import Silent

DEPTH, CONTEXT = 8, 4096
FIRST_TOKEN, TOKEN_KINDS = 300, 500
WINDOW_MS, HOLD_MS = 0.8, 0.9
"""Times of a fast device, by which drafts of all depths pay."""


def text_at(position: jax.Array) -> jax.Array:
    """The token that every reply has at a position."""
    return FIRST_TOKEN + position % TOKEN_KINDS


def instant_step(step: Step, bucket: Bucket, state: State, page_table: jax.Array) -> Any:
    """The bucket's program without its model."""
    token, matrix = int32(bucket.rows), int32(len(FIELDS), bucket.rows)
    given = jax.eval_shape(partial(step.forward, bucket), step.parameters, state, token, matrix, page_table)

    def program(parameters: Any, state: State, token: Any, matrix: jax.Array, page_table: Any) -> Stepped:
        assert state.unread is not None
        token, matrix = resolved(state.unread, token, matrix)
        field = unpack(matrix)
        drawn = text_at(field["position"][field["draw_row"][: bucket.draws]] + 1)
        made: Stepped = jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), given._replace(state=None))
        unread = state.unread
        if bucket.draws == bucket.rows:
            unread = landed(unread, token, drawn, field["lane"])
        made = made._replace(drawn=made.drawn._replace(token=drawn), token=token)
        return made._replace(state=state._replace(unread=unread))

    return _compiled(program, step.parameters, state, token, matrix, page_table)


def instant_absorb(step: BlockStep, rows: int, features: Any, cache: Any, page_table: jax.Array) -> Any:
    def program(parameters: Any, cache: Any, features: Any, places: Any, page_table: Any) -> Any:
        return cache

    return _compiled(program, step.parameters, cache, features, int32(2, rows), page_table)


def instant_hold(step: BlockStep, streams: int, cache: Any, state: State, page_table: jax.Array) -> Any:
    plan = step.plan

    def program(parameters: Any, cache: Any, tables: Any, unread: Unread, told: jax.Array, pages: Any) -> Any:
        matrix, _ = asked(unread, told[: len(FIELDS)], told[len(FIELDS)])
        field = unpack(matrix)
        position = jnp.pad(field["position"], (0, plan.most_streams - streams))
        token = text_at(position[:, None] + 1 + jnp.arange(plan.depth))
        drafts = waiting(unread, field["lane"], token[:streams])
        return Drafts(token, jnp.full(token.shape, 0.95)), drafts, cache

    told = int32(len(FIELDS) + len(ASK_FIELDS), streams)
    return _compiled(program, step.parameters, cache, state.tables, state.unread, told, page_table)


def _compiled(program: Callable[..., Any], *arguments: Any) -> Any:
    return jax.jit(program, donate_argnums=1, keep_unused=True).lower(*arguments).compile()


def open_pair(form: str, lanes: int) -> tuple[ServeConfig, Opened, DraftingModel]:
    """Weights in modules, or in the stacks that device kernels take: programs without a model run on any device."""
    stacked = patch("tfjax.engine.kernel_choice.chosen", lambda *_: (Route.PALLAS_GPU, "its arguments"))
    config = ServeConfig(model=str(TARGET), context=CONTEXT, parallel=lanes, offline=True)
    with stacked if form == "stacks" else nullcontext():
        opened = open_model(config, _quiet)
        choice = choose_drafter(config, opened.model, opened.tokenizer, _quiet)
    assert choice.model is not None
    return config, opened, choice.model


def started(
    config: ServeConfig, opened: Opened, drafting: DraftingModel, form: str
) -> tuple[TargetBackend, DSparkDrafter]:
    """Target and drafter with instant programs and the times of a fast device."""
    model = opened.model
    memory, _ = fit_both(config, model, Choice(drafting))
    stacks = model.family.stacked
    assert stacks is not None
    plan = kernel_plan(stacks.tile_rows(model.config)) if form == "stacks" else row_invariant_plan(2)
    target = TargetBackend(model, Step(model.module, drafting.taps, model.kernels.route), plan, memory)
    for bucket in plan.all:
        target.step._compiled[bucket] = instant_step(target.step, bucket, target.state, target.page_table)
    target.window_ms = {width: WINDOW_MS + width / 1000 for width in plan.widths}
    target.warm_up()
    own: Any = drafting.loaded.config
    blocks = block_plan(memory.lanes, min(DEPTH, own.block), own.first_slot, plan)
    drafter = DSparkDrafter(drafting, BlockStep(drafting.loaded.module, blocks), blocks, target)
    drafter.hold_ms = {count: {1: HOLD_MS, blocks.depth: HOLD_MS} for count in (1, memory.lanes)}
    step, width = drafter.step, len(own.taps) * own.target_hidden
    for hold in blocks.holds:
        step._compiled[hold] = instant_hold(step, hold.streams, drafter.cache, target.state, target.page_table)
    for rows in blocks.absorbs:
        features = jax.ShapeDtypeStruct((rows, width), drafting.loaded.dtype)
        step._compiled[rows] = instant_absorb(step, rows, features, drafter.cache, target.page_table)
    return target, drafter


def instant_engine(form: str, lanes: int, *, held: bool) -> tuple[TargetBackend, DSparkDrafter, Engine]:
    """A running engine, its target and its drafter; `held` is whether drafts stay on the device until verified."""
    config, opened, drafting = open_pair(form, lanes)
    target, drafter = started(config, opened, drafting, form)
    if held:
        hold_on_device(drafter)
    settings = loop_settings(target, draft_tokens=DEPTH, first_width=3)
    served = Served("pair", opened.tokenizer, opened.tokenizer.eos_ids)
    ticks = count()  # A clock that no busy machine moves: what is drafted is the same in every run.
    backend = Drafted(target, drafter, target.vocab)
    engine = Engine(backend, settings, served, clock=lambda: next(ticks) / 2000, proposer=lambda request: Silent())
    return target, drafter, engine


def _quiet(phase: str, share: float) -> None:
    pass
