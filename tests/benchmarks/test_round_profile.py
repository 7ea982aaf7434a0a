"""Every part that is left out of a step is one of the step's own."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchmarks.round_profile import PARTS, without
from tests.models.tiny import TINY, random_llama
from tfjax.engine.lane_tables import empty_tables
from tfjax.engine.rows_buffer import FIELDS
from tfjax.engine.step import Bucket, State, Step
from tfjax.kernels.paged_attention import BLOCK_KEYS, PAGE_ROWS
from tfjax.models.llama import empty_cache

LANES, PAGES = 2, BLOCK_KEYS // PAGE_ROWS
BUCKET = Bucket(4, 4, 4)


def traced(part: str | None) -> Any:
    """A step's operations, and the shapes of what it gives."""
    with without(part):
        step: Any = Step(random_llama(TINY, jnp.bfloat16))
        int32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.int32)
        cache = jax.eval_shape(lambda: empty_cache(TINY, PAGES + 1, PAGE_ROWS, LANES, jnp.bfloat16))
        state = State(cache, jax.eval_shape(lambda: empty_tables(LANES, TINY.vocab, BLOCK_KEYS)))
        arguments = (int32((BUCKET.rows,)), int32((len(FIELDS), BUCKET.rows)), int32((LANES, PAGES)))
        return jax.make_jaxpr(functools.partial(step.forward, BUCKET), return_shape=True)(
            step.parameters, state, *arguments
        )


@pytest.mark.parametrize("part", PARTS)
def test_a_step_without_a_part_is_another_and_gives_the_same_shapes(part: str) -> None:
    (whole, shapes), (rest, found) = traced(None), traced(part)
    assert str(rest) != str(whole)
    assert jax.tree.map(lambda x: x.shape, found) == jax.tree.map(lambda x: x.shape, shapes)
