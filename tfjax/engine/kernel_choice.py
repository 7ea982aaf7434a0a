"""Whether a model runs by device kernels, and why (not)."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.engine.buckets import kernel_plan
from tfjax.engine.lane_tables import empty_tables
from tfjax.engine.rows_buffer import FIELDS
from tfjax.engine.step import State, Step
from tfjax.kernels.paged_attention import BLOCK_KEYS, PAGE_ROWS
from tfjax.kernels.routes import Route, Unsupported, chosen
from tfjax.models.family import Family, Stacked

LANES, PAGES = 2, 2
"""Of the abstract forward that is traced; no size of it decides what the kernels can take."""


class Kernels(NamedTuple):
    """What a model runs by.

    Attributes:
        reason: why this route, for people.
        stacked: the parameters lie in stacks (see models/family.py), which every device route needs.
    """

    route: Route
    reason: str
    stacked: bool = False


XLA = Kernels(Route.REFERENCE, "nothing else was asked for")


def choose_kernels(wanted: str, family: Family[Any], config: Any, dtype: Any) -> Kernels:
    """What `--kernels` means for a model on this device. Nothing is allocated."""
    route, reason = chosen(wanted, jax.devices()[0])
    if route is Route.REFERENCE:
        return Kernels(route, reason)
    trouble = obstacle(family, config, dtype, route)
    if trouble:
        return Kernels(Route.REFERENCE, f"there are no kernels for {trouble}")
    return Kernels(route, reason, stacked=True)


def obstacle(family: Family[Any], config: Any, dtype: Any, route: Route) -> str:
    """What the route cannot take of a model; empty for none."""
    form = family.stacked
    if form is None:
        return f"all operators of {family.architecture}"
    try:
        module: Any = nnx.eval_shape(lambda: form.build(config, dtype, route))
    except Unsupported as error:
        return str(error)
    return refusal(module, form, config, dtype)


def refusal(module: Any, form: Stacked[Any], config: Any, dtype: Any) -> str:
    """What a module's route cannot take of it, found by tracing its narrowest and widest forward; empty for none."""
    plan = kernel_plan(form.tile_rows(config))
    int32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.int32)
    columns = BLOCK_KEYS // PAGE_ROWS
    step = Step(module, route=module.route)
    try:
        state = jax.eval_shape(
            lambda: State(
                form.empty_cache(config, PAGES, PAGE_ROWS, LANES, dtype),
                empty_tables(LANES, config.vocab, BLOCK_KEYS),
            )
        )
        for bucket in (plan.verify[0], plan.prompt[-1]):
            rows = bucket.rows
            arguments = (step.parameters, state, int32((rows,)), int32((len(FIELDS), rows)), int32((LANES, columns)))
            jax.eval_shape(functools.partial(step.forward, bucket), *arguments)
    except Unsupported as error:
        return str(error)
    return ""
