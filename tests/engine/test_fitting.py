from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.engine.drafters.pair import drafting
from tests.engine.drafters.spark_pair import drafting_spark, random_spark
from tests.models.tiny import TINY, random_llama
from tests.models.tiny_lfm2 import MOE, random_lfm2
from tfjax.config import ServeConfig
from tfjax.engine import fitting
from tfjax.engine.drafters.choosing import Choice
from tfjax.engine.fitting import fit_both, fit_memory
from tfjax.engine.memory import DoesNotFit
from tfjax.engine.weights import LoadedModel
from tfjax.kernels.short_conv import RING
from tfjax.models import lfm2_moe
from tfjax.models.llama import FAMILY, LlamaConfig

SMALL = replace(TINY, layers=1)
NUMBERS = TINY.vocab * TINY.hidden + TINY.hidden * (1 + 2 * TINY.layers)
LAYER_NUMBERS = TINY.hidden * 64 + TINY.hidden * 32 + 3 * TINY.hidden * TINY.inner
POSITION_BYTES = 2 * 4 * TINY.kv_heads * TINY.head_dim
"""Of one layer."""


def model(config: LlamaConfig = TINY) -> LoadedModel:
    return LoadedModel(FAMILY, config, random_llama(config, np.float32), np.float32)


def with_budget(monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> None:
    monkeypatch.setattr(fitting, "memory_budget", lambda: size_bytes)


def test_memory_is_planned_for_what_the_model_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    with_budget(monkeypatch, 10**9)
    plan = fit_memory(model(), asked=None, lanes=3)
    assert plan.weight_bytes == 4 * (NUMBERS + TINY.layers * LAYER_NUMBERS)
    assert (plan.context, plan.lanes) == (TINY.context, 3)
    assert plan.cache_bytes == (plan.pages + 1) * 64 * TINY.layers * POSITION_BYTES


def test_a_drafters_weights_cache_and_tables_are_planned_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with_budget(monkeypatch, 10**9)
    alone, small = fit_memory(model(), asked=None, lanes=3), drafting(model(SMALL))
    plan = fit_memory(model(), asked=None, lanes=3, drafter=small)
    assert plan.weight_bytes == alone.weight_bytes + small.loaded.weight_bytes
    assert plan.cache_bytes * TINY.layers == alone.cache_bytes * (TINY.layers + SMALL.layers)
    shared = replace(small, shared=tuple(fitting_leaves(small.loaded)[:1]))
    plan = fit_memory(model(), asked=None, lanes=3, drafter=shared)
    assert plan.weight_bytes == alone.weight_bytes + small.loaded.weight_bytes - shared.shared[0].nbytes


def test_a_drafter_that_reads_the_targets_layers_has_no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    with_budget(monkeypatch, 10**9)
    planned: list[int] = []

    def plan_memory(*, bytes_per_lane: int, **sizes: Any) -> Any:
        planned.append(bytes_per_lane)

    monkeypatch.setattr(fitting, "plan_memory", plan_memory)
    spark = drafting_spark(random_spark(random_llama(TINY, np.float32)))
    for drafter in (None, spark, drafting(model(SMALL))):
        fit_memory(model(), asked=None, lanes=3, drafter=drafter)
    alone, beside_blocks, beside_small = planned
    assert alone == beside_blocks
    assert beside_small == 2 * alone


def fitting_leaves(loaded: LoadedModel) -> list[Any]:
    import jax
    from flax import nnx

    return list(jax.tree.leaves(nnx.state(loaded.module)))


def least_budget(monkeypatch: pytest.MonkeyPatch, drafter: Any) -> int:
    """Bytes with which the smallest context just fits."""

    def fits(size_bytes: int) -> bool:
        with_budget(monkeypatch, size_bytes)
        try:
            fit_memory(model(), asked=None, lanes=4, drafter=drafter)
        except DoesNotFit:
            return False
        return True

    low, high = 0, 1 << 30
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def test_a_drafter_that_does_not_fit(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """One that was named is refused with its flag; one that nobody named gives way, and says so once."""
    small = drafting(model(SMALL))
    alone, both = least_budget(monkeypatch, None), least_budget(monkeypatch, small)
    assert both > alone + small.weight_bytes
    with_budget(monkeypatch, both - 1)
    with pytest.raises(DoesNotFit, match=r"smaller --context or --parallel, or leave out --drafter /models/small$"):
        fit_both(ServeConfig(drafter="/models/small"), model(), Choice(small))
    with caplog.at_level(logging.WARNING):
        memory, choice = fit_both(ServeConfig(), model(), Choice(small))
    assert (choice.model, memory.weight_bytes) == (None, model().weight_bytes)
    assert "there is no room for tiny" in (choice.reason or "")
    assert len(caplog.records) == 1
    with_budget(monkeypatch, both)
    assert fit_both(ServeConfig(), model(), Choice(small))[1].model is small
    with_budget(monkeypatch, alone - 1)
    with pytest.raises(DoesNotFit) as refusal:
        fit_both(ServeConfig(), model(), Choice(None, "none"))
    assert "--drafter" not in str(refusal.value)


def test_what_each_lane_needs_of_its_own_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings of convolutions do not grow with the context, and leave less for it."""
    lfm2 = LoadedModel(lfm2_moe.FAMILY, replace(MOE, context=1 << 20), random_lfm2(MOE, np.float32), np.float32)
    own = lfm2.family.cache_bytes_per_lane(MOE, lfm2.dtype)
    assert own == 2 * RING * MOE.hidden * 4
    with_budget(monkeypatch, 10**8)
    monkeypatch.setattr(fitting, "bytes_per_lane", lambda vocab, positions: 0)
    plan = fit_memory(lfm2, asked=None, lanes=3)
    assert plan.cache_bytes + plan.weight_bytes + 4 * own <= 10**8
    greedy = replace(lfm2, family=replace(lfm2.family, cache_bytes_per_lane=lambda config, dtype: 99 * own))
    assert fit_memory(greedy, asked=None, lanes=3).context < plan.context
