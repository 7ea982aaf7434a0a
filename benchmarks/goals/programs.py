"""The programs of a start, ready to be compiled for arguments that are shapes only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from benchmarks.shapes import CONTEXT, DTYPE, drafter_of, dspark_module
from tfjax.engine.buckets import Plan, kernel_plan, row_invariant_plan, single_bucket_plan
from tfjax.engine.compiling import Prepare
from tfjax.engine.drafters.block_plan import SHORTER, block_plan
from tfjax.engine.drafters.block_step import BlockStep
from tfjax.engine.drafters.dspark_kernels import choose_dspark_kernels
from tfjax.engine.kept_programs import kept_for
from tfjax.engine.kernel_choice import Kernels, choose_kernels
from tfjax.engine.lane_tables import empty_tables
from tfjax.engine.nearness import Reference
from tfjax.engine.step import State, Step
from tfjax.engine.unread import nothing_unread
from tfjax.engine.weights import LoadedModel
from tfjax.kernels.matmul import MIN_ROWS
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.models import dspark
from tfjax.models.dspark_config import DSparkConfig
from tfjax.models.llama import FAMILY, LlamaConfig

LANES = 4
PAGES = CONTEXT // PAGE_ROWS
TAPS = 5


@dataclass(frozen=True, slots=True)
class AbstractStart:
    """What a start compiles, by phase, and what the target runs by."""

    kernels: Kernels
    programs: Mapping[str, Sequence[Prepare]]


def abstract_start(config: LlamaConfig, kernels: str, *, drafter: bool) -> AbstractStart:
    """All buckets of the target, and with a drafter the features that it taps and its own programs."""
    run_by = choose_kernels(kernels, FAMILY, config, DTYPE)
    form = FAMILY.stacked if run_by.stacked else None
    module: nnx.Module = nnx.eval_shape(
        lambda: form.build(config, DTYPE, run_by.route) if form else FAMILY.build(config, DTYPE)
    )
    plan = kernel_plan(form.tile_rows(config)) if form else _xla_plan()
    empty = (form or FAMILY).empty_cache
    state = jax.eval_shape(
        lambda: State(
            empty(config, LANES * PAGES + 1, PAGE_ROWS, LANES + 1, DTYPE),
            empty_tables(LANES + 1, config.vocab, CONTEXT),
            nothing_unread(LANES + 1),
        )
    )
    pages: Any = jax.ShapeDtypeStruct((LANES + 1, PAGES), jnp.int32)
    own = drafter_of(config, _taps(config)) if drafter else None
    step = Step(module, own.taps if own else (), run_by.route, kept_for(module, config, run_by.route))
    target: list[Prepare] = [partial(step.prepare, bucket, state, pages) for bucket in plan.all]
    if form:
        target.insert(0, Reference(LoadedModel(FAMILY, config, module, DTYPE, run_by), plan.verify[0]).prepare)
    programs: dict[str, Sequence[Prepare]] = {"target": target}
    if own is not None:
        drafts_by = choose_dspark_kernels(dspark.FAMILY, own, DTYPE, run_by, config.vocab)
        programs["drafter"] = _drafter_programs(own, drafts_by, plan, state, pages)
    return AbstractStart(run_by, programs)


def _xla_plan() -> Plan:
    return row_invariant_plan(MIN_ROWS) if jax.default_backend() == "cpu" else single_bucket_plan()


def _taps(config: LlamaConfig) -> tuple[int, ...]:
    """Spread over the layers; the last one cannot be tapped."""
    return tuple(dict.fromkeys(i * (config.layers - 1) // TAPS for i in range(TAPS)))


def _drafter_programs(config: DSparkConfig, run_by: Kernels, target: Plan, state: Any, pages: Any) -> Sequence[Prepare]:
    module = nnx.eval_shape(lambda: _joined(config, run_by))
    form = dspark.FAMILY.stacked if run_by.stacked else None
    plan = block_plan(LANES, config.block, config.first_slot, target, SHORTER.get(jax.default_backend(), ()))
    step = BlockStep(module, plan, kept_for(module, config, run_by.route))
    cache = jax.eval_shape(
        lambda: (form or dspark.FAMILY).empty_cache(config, LANES * PAGES + 1, PAGE_ROWS, LANES + 1, DTYPE)
    )
    width = len(config.taps) * config.target_hidden
    return [
        *(partial(step.prepare_holding, bucket, cache, state, pages) for bucket in plan.holds),
        *(
            partial(step.prepare_absorbing, cache, jax.ShapeDtypeStruct((rows, width), DTYPE), pages)
            for rows in plan.absorbs
        ),
    ]


def _joined(config: DSparkConfig, run_by: Kernels) -> nnx.Module:
    """With a place for its target's embedding and head."""
    module: Any = dspark_module(config, run_by)
    shared = jnp.zeros((config.vocab, config.hidden), DTYPE)
    module.join(shared, shared, jnp.arange(config.vocab, dtype=jnp.int32))
    made: nnx.Module = module
    return made
