"""Whether a DSpark drafter runs by device kernels, and the proof that drafts do not depend on others beside them."""

from __future__ import annotations

import functools
import logging
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tfjax.engine.drafters.block_plan import BlockBucket, BlockPlan
from tfjax.engine.drafters.block_step import ASK_FIELDS, BlockStep, Told
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.dspark import DSparkDrafter
from tfjax.engine.kernel_choice import XLA, Kernels
from tfjax.engine.lane_tables import empty_tables
from tfjax.engine.rows_buffer import FIELDS
from tfjax.engine.unread import nothing_unread
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.routes import Route, Unsupported
from tfjax.models.dspark_config import DSparkConfig
from tfjax.models.family import Family

log = logging.getLogger(__name__)

LANES, PAGES, ROWS = 2, 2, 8
"""Of the abstract forwards that are traced; no size of them decides what the kernels can take."""

PROOF_PAGES = 2
"""Pages of context that drafts are proved behind."""


def choose_dspark_kernels(
    family: Family[DSparkConfig], config: DSparkConfig, dtype: Any, target: Kernels, target_vocab: int
) -> Kernels:
    """What the drafter runs by: the target's kernels where they take its sizes. Nothing is allocated."""
    if not target.stacked or family.stacked is None:
        return XLA._replace(reason="the target runs without kernels")
    trouble = obstacle(family, config, dtype, target.route, target_vocab)
    if trouble:
        return XLA._replace(reason=f"there are no kernels for {trouble}")
    return Kernels(target.route, "the target runs by them", stacked=True)


def obstacle(family: Family[DSparkConfig], config: DSparkConfig, dtype: Any, route: Route, target_vocab: int) -> str:
    """What the route cannot take of a drafter, found by tracing what it does; empty for none."""
    form = family.stacked
    assert form is not None
    int32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.int32)
    bucket = BlockBucket(1, config.block + config.first_slot)
    pages = int32((LANES, PAGES))
    try:
        module: Any = nnx.eval_shape(lambda: form.build(config, dtype, route))
        step = BlockStep(module, BlockPlan(config.block, config.first_slot, (bucket,), (ROWS,)))
        cache = jax.eval_shape(lambda: form.empty_cache(config, PAGES, PAGE_ROWS, LANES, dtype))
        tables = jax.eval_shape(lambda: empty_tables(LANES, target_vocab, PAGES * PAGE_ROWS))
        unread = jax.eval_shape(lambda: nothing_unread(LANES))
        features = jax.ShapeDtypeStruct((ROWS, len(config.taps) * config.target_hidden), dtype)
        jax.eval_shape(step.absorbing, step.parameters, cache, features, int32((2, ROWS)), pages)
        asks = int32((len(FIELDS), 1)), int32((len(ASK_FIELDS), 1))
        jax.eval_shape(functools.partial(step.holding, bucket), step.parameters, cache, tables, unread, *asks, pages)
    except Unsupported as error:
        return str(error)
    return ""


def without_kernels(model: DraftingModel, reason: str) -> DraftingModel:
    """The drafter in modules. The given one's parameters are given away."""
    loaded = model.loaded
    form = loaded.family.stacked
    assert form is not None
    log.warning("%s; %s drafts without them", reason, model.name)
    module = form.unstacked(loaded.module)
    return replace(model, loaded=replace(loaded, module=module, kernels=XLA._replace(reason=reason)))


def difference(drafter: DSparkDrafter) -> str:
    """How drafts depend on what is computed beside them; empty where they do not.

    The same context is taken in by the widest programs and by the narrowest, and the drafts behind it are made for one
    stream and for two. What the drafter knew is forgotten.
    """
    try:
        return _difference(drafter)
    finally:
        drafter.forget()


def _difference(drafter: DSparkDrafter) -> str:
    memory, absorbs = drafter.memory, drafter.plan.absorbs
    lanes = min(2, memory.lanes)
    pages = min(PROOF_PAGES, memory.pages_per_lane, memory.pages // lanes)
    slots = drafter.plan.holds[-1].slots
    room = min(pages * PAGE_ROWS, drafter.context)
    known = room - slots
    if known < 1:
        return f"{room} positions leave a block of {slots} no context to prove it behind"
    table = np.zeros(drafter.target.page_table.shape, np.int32)
    for lane in range(lanes):
        table[lane, :pages] = 1 + lane * pages + np.arange(pages)
    page_table = jnp.asarray(table)
    config = drafter.model.loaded.config
    width = len(config.taps) * config.target_hidden
    features = np.random.default_rng(0).normal(size=(known, width)).astype(np.float32)
    _take_in(drafter, features, 0, absorbs[-1], page_table)
    alone = _drafts(drafter, [0], known, page_table)
    _take_in(drafter, features, lanes - 1, absorbs[0], page_table)
    beside = _drafts(drafter, [lanes - 1, 0][:lanes], known, page_table)
    if not all(np.all(np.isfinite(drafts[1])) for drafts in (alone, beside)):
        return "confidences are not finite"
    for row in range(lanes):
        for name, one, other in zip(("tokens", "confidences"), alone, beside, strict=True):
            if not np.array_equal(one[0], other[row]):
                return f"{name} of a block differ at place {row} of {lanes} blocks"
    return ""


def _take_in(
    drafter: DSparkDrafter, features: NDArray[np.float32], lane: int, rows: int, page_table: jax.Array
) -> None:
    """Absorb a lane's context by programs of so many rows."""
    for start in range(0, len(features), rows):
        some = features[start : start + rows]
        padded = np.zeros((rows, features.shape[1]), np.float32)
        padded[: len(some)] = some
        places = np.zeros((2, rows), np.int32)
        places[0], places[0, : len(some)] = drafter.memory.lanes, lane
        places[1, : len(some)] = start + np.arange(len(some))
        values = jnp.asarray(padded, drafter.model.loaded.dtype)
        drafter.cache = drafter.step.absorb(drafter.cache, Told(values, jnp.asarray(places)), page_table)


def _drafts(
    drafter: DSparkDrafter, lanes: list[int], position: int, page_table: jax.Array
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Greedy tokens and confidences of every lane."""
    drafts = jax.device_get(drafter.rehearse(lanes, position, page_table))
    return drafts.token[: len(lanes)], drafts.confidence[: len(lanes)]
