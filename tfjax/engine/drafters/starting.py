"""From a drafter's weights to one that drafts: cache, compiled programs, measured times."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import jax

from tfjax.engine.buckets import Plan
from tfjax.engine.compiling import compile_all
from tfjax.engine.drafters.block_plan import SHORTER, BlockPlan, block_plan
from tfjax.engine.drafters.block_step import JOINED, BlockStep
from tfjax.engine.drafters.draft_plan import draft_plan
from tfjax.engine.drafters.draft_step import DraftStep
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.dspark import DSparkDrafter
from tfjax.engine.drafters.dspark_kernels import difference, without_kernels
from tfjax.engine.drafters.hold_times import time_holds
from tfjax.engine.drafters.small_model import SmallModel
from tfjax.engine.kept_programs import kept_for
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.target import TargetBackend
from tfjax.engine.unread import MOST_HELD
from tfjax.engine.weights import Progress
from tfjax.kernels.matmul import MIN_ROWS
from tfjax.models.dspark_config import DSparkConfig

log = logging.getLogger(__name__)

READ_ON = ("cpu",)
"""Backends where the host reads drafts before they are verified: it waits for no device there."""


def start_drafter(
    model: DraftingModel,
    memory: MemoryPlan,
    target_plan: Plan,
    depth: int,
    progress: Progress,
    *,
    timings: Path,
    key: Sequence[str],
) -> SmallModel:
    """Allocate, compile and time. `timings` and `key` are where and under what its times are kept."""
    least = target_plan.verify[0].rows if target_plan.arithmetic == "row-invariant" else MIN_ROWS
    plan = draft_plan(memory.lanes, depth, least)
    drafter = SmallModel(model, DraftStep(model.loaded.module, model.ids), plan, memory)
    compile_drafter(drafter, progress)
    _time(drafter, progress, timings, [*key, str(plan)])
    return drafter


def start_dspark(
    model: DraftingModel,
    target: TargetBackend,
    depth: int,
    progress: Progress,
    *,
    timings: Path,
    key: Sequence[str],
    held: bool | None = None,
) -> DSparkDrafter:
    """The same for a drafter that reads the target's layers. `depth` is the most drafts wanted.

    `held` says whether its drafts stay on the device until they are verified; by default where that saves time.
    """
    config: DSparkConfig = model.loaded.config
    shorter = SHORTER.get(jax.default_backend(), ())
    plan = block_plan(target.memory.lanes, min(depth, config.block, MOST_HELD), config.first_slot, target.plan, shorter)
    drafter = _proved(model, plan, target, progress)
    if held if held is not None else jax.default_backend() not in READ_ON:
        hold_on_device(drafter)
    _time(drafter, progress, timings, [*key, str(plan)])
    return drafter


def hold_on_device(drafter: DSparkDrafter) -> None:
    """Verify drafts that the host has not seen, and queue rounds with drafts behind others."""
    drafter.target.held = drafter.holds_for


def _proved(model: DraftingModel, plan: BlockPlan, target: TargetBackend, progress: Progress) -> DSparkDrafter:
    """A compiled drafter; one without kernels where they do not compile or its drafts depend on those beside them."""
    if model.loaded.kernels.stacked:
        drafter, reason = _by_kernels(model, plan, target, progress)
        if drafter is not None:
            return drafter
        target.listener = None  # Or it would keep the failed drafter, and its cache, in memory.
        model = without_kernels(model, f"{model.loaded.kernels.route} kernels of the drafter: {reason}")
    drafter = DSparkDrafter(model, BlockStep(model.loaded.module, plan), plan, target)
    compile_dspark(drafter, progress)
    return drafter


def _by_kernels(
    model: DraftingModel, plan: BlockPlan, target: TargetBackend, progress: Progress
) -> tuple[DSparkDrafter | None, str]:
    """The drafter by kernels, or why not."""
    loaded = model.loaded
    kept = kept_for(loaded.module, loaded.config, loaded.kernels.route)
    try:
        drafter = DSparkDrafter(model, BlockStep(loaded.module, plan, kept), plan, target)
        compile_dspark(drafter, progress)
        reason = difference(drafter)
    except Exception as error:  # noqa: BLE001 - compilers fail in many ways, and the modules still draft
        reason = f"{type(error).__name__}: {str(error)[:500]}"
    return (None, reason) if reason else (drafter, "")


def compile_dspark(drafter: DSparkDrafter, progress: Progress) -> None:
    """Compile every program that drafting needs, so that no round waits for one."""
    step, target, config = drafter.step, drafter.target, drafter.model.loaded.config
    width, dtype = len(config.taps) * config.target_hidden, drafter.model.loaded.dtype
    holds = [
        partial(step.prepare_holding, bucket, drafter.cache, target.state, target.page_table)
        for bucket in drafter.plan.holds
    ]
    taken, features = drafter.plan.absorbs, partial(jax.ShapeDtypeStruct, dtype=dtype)
    absorbs = [
        partial(step.prepare_absorbing, drafter.cache, features((rows, width)), target.page_table) for rows in taken
    ]
    joins = [partial(step.prepare_joining, features((rows, width))) for rows in taken if JOINED * rows in taken]
    compile_all([*holds, *absorbs, *joins], "compiling the drafter", progress)


def _time(drafter: SmallModel | DSparkDrafter, progress: Progress, timings: Path, key: Sequence[str]) -> None:
    """Measure what holds take, or read what was measured before."""
    progress("timing the drafter", 0.0)
    model = drafter.model
    key = [*key, repr(model.loaded.config), str(model.ids.size)]
    key += [str(model.loaded.kernels.route), "stacked"] if model.loaded.kernels.stacked else []
    drafter.hold_ms, is_new = time_holds(drafter, timings, key)
    times = "; ".join(
        f"{streams} stream{'s' * (streams > 1)}: " + ", ".join(f"{ms:.1f} ms for {n}" for n, ms in row.items())
        for streams, row in drafter.hold_ms.items()
    )
    how = "measured now" if is_new else "kept from an earlier start"
    log.info("drafts of %s take, by depth, with %s (%s)", model.name, times, how)


def compile_drafter(drafter: SmallModel, progress: Progress) -> None:
    """Compile every program that drafting needs, so that no round waits for one."""
    step, state, pages = drafter.step, drafter.state, drafter.page_table
    holds = [partial(step.prepare_holding, bucket, state, pages) for bucket in drafter.plan.holds]
    absorbs = [partial(step.prepare_absorbing, bucket, state, pages) for bucket in drafter.plan.absorbs]
    compile_all([*holds, *absorbs], "compiling the drafter", progress)
    drafter.warm_up()
