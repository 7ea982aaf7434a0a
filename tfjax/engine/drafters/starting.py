"""From a drafter's weights to one that drafts: cache, compiled programs, measured times."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tfjax.engine.buckets import Plan
from tfjax.engine.compiling import compile_all
from tfjax.engine.drafters.draft_plan import draft_plan
from tfjax.engine.drafters.draft_step import DraftStep
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.hold_times import time_holds
from tfjax.engine.drafters.small_model import SmallModel
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.weights import Progress
from tfjax.kernels.matmul import MIN_ROWS

log = logging.getLogger(__name__)


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
    progress("timing the drafter", 0.0)
    drafter.hold_ms, is_new = time_holds(
        drafter, timings, [*key, str(plan), repr(model.loaded.config), str(model.ids.size)]
    )
    times = "; ".join(
        f"{streams} stream{'s' * (streams > 1)}: " + ", ".join(f"{ms:.1f} ms for {n}" for n, ms in row.items())
        for streams, row in drafter.hold_ms.items()
    )
    how = "measured now" if is_new else "kept from an earlier start"
    log.info("drafts of %s take, by depth, with %s (%s)", model.name, times, how)
    return drafter


def compile_drafter(drafter: SmallModel, progress: Progress) -> None:
    """Compile every program that drafting needs, so that no round waits for one."""
    step, state, pages = drafter.step, drafter.state, drafter.page_table
    holds = [partial(step.compile_holding, bucket, state, pages) for bucket in drafter.plan.holds]
    absorbs = [partial(step.compile_absorbing, bucket, state, pages) for bucket in drafter.plan.absorbs]
    compile_all([*holds, *absorbs], "compiling the drafter", progress)
    drafter.warm_up()
