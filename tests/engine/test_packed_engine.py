"""Whole replies of models whose weights stay packed: those of the same models expanded at load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.engine.packed_models import CONFIGS, loaded, quantized
from tests.engine.test_lfm2_engine import GREEDY, MEMORY, NARROW, SEEDED, Stage, prompt
from tfjax.engine.load import compile_buckets
from tfjax.engine.probe import probe
from tfjax.engine.step import Step
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import LoadedModel
from tfjax.kernels import packed as kernel
from tfjax.kernels.packed import PackedWeight

JOBS = [(prompt(size), sampling) for size in (1, 66) for sampling in (GREEDY, SEEDED)]


def stage_of(model: LoadedModel) -> Stage:
    backend = TargetBackend(model, Step(model.module), NARROW, MEMORY)
    compile_buckets(backend, lambda phase, share: None)
    return Stage(backend)


def told(stage: Stage, **changes: Any) -> dict[Any, list[int]]:
    engine = stage.engine()
    asked = {job: stage.ask(engine, job, **changes) for job in JOBS}
    for receiver in asked.values():
        assert receiver.wait().error is None, receiver.wait().error
    engine.close()
    return {job: receiver.tokens for job, receiver in asked.items()}


@pytest.mark.parametrize("name", CONFIGS)
def test_packed_replies_are_the_dense_ones(tmp_path: Path, name: str) -> None:
    """Greedy and seeded, plain and with drafts that are rejected at every depth; the probe passes too."""
    checkpoint = quantized(tmp_path, name)
    dense, packed = (stage_of(loaded(checkpoint, word)) for word in ("dense", "packed"))
    packed.replies = wanted = told(dense, draft=False)
    assert len({tuple(reply) for reply in wanted.values()}) == len(JOBS)
    assert told(packed, draft=False) == wanted
    assert told(packed, draft=True) == wanted
    assert len(packed.rejected) > 3
    fresh = jax.tree.map(jnp.zeros_like, packed.backend.state)
    assert probe(packed.backend.step, NARROW, MEMORY, 64, fresh)[0].passed


@pytest.mark.slow
def test_a_bias_that_is_dropped_changes_replies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, right = quantized(tmp_path, "lfm2_moe"), kernel._expand

    def without_bias(weight: PackedWeight) -> jax.Array:
        nothing = jnp.zeros_like(weight.biases)
        return right(PackedWeight(weight.words, weight.scales, nothing, weight.bits, weight.group, weight.dtype))

    wanted = told(stage_of(loaded(checkpoint, "dense")), draft=False)
    monkeypatch.setattr(kernel, "_expand", without_bias)
    jax.clear_caches()
    assert told(stage_of(loaded(checkpoint, "packed")), draft=False) != wanted
    monkeypatch.undo()
    jax.clear_caches()
