"""DSpark's programs lower for CUDA and for Apple's plugins by operations that they have. Neither need be installed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.engine.drafters.spark_pair import BLOCK, SHAPE, TAPS, TARGET, drafting_spark, random_spark
from tests.engine.test_apple_lowering import PLATFORMS, faults, lowered
from tests.models.tiny import random_llama
from tfjax.engine.drafters.block_plan import BlockBucket, BlockPlan
from tfjax.engine.drafters.block_step import ASK_FIELDS, BlockStep
from tfjax.engine.lane_tables import empty_tables
from tfjax.engine.rows_buffer import FIELDS
from tfjax.engine.unread import nothing_unread
from tfjax.kernels.paged_attention import PAGE_ROWS

LANES, PAGES, ROWS = 3, 4, 8


def programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    spark = random_spark(random_llama(TARGET, jnp.float32))
    bucket = BlockBucket(2, BLOCK)
    step = BlockStep(spark.module, BlockPlan(BLOCK, 0, (bucket,), (ROWS,)))
    int32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.int32)
    cache = jax.eval_shape(lambda: drafting_spark(spark).empty_cache(LANES * PAGES, LANES))
    tables = jax.eval_shape(lambda: empty_tables(LANES, SHAPE.vocab, PAGES * PAGE_ROWS))
    unread = jax.eval_shape(lambda: nothing_unread(LANES))
    features = jax.ShapeDtypeStruct((ROWS, len(TAPS) * SHAPE.hidden), jnp.float32)
    pages = int32((LANES, PAGES))
    asks = int32((len(FIELDS), bucket.streams)), int32((len(ASK_FIELDS), bucket.streams))
    return {
        "absorbing": (step.absorbing, (step.parameters, cache, features, int32((2, ROWS)), pages)),
        "holding": (functools.partial(step.holding, bucket), (step.parameters, cache, tables, unread, *asks, pages)),
    }


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("name", ["absorbing", "holding"])
def test_programs_lower_without_what_plugins_lack(name: str, platform: str) -> None:
    function, arguments = programs()[name]
    assert faults(lowered(function, platform, *arguments)) == set()
