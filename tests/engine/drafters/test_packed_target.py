"""Drafters that share embedding and head with a target whose weights stay packed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tests.models.dspark_oracle import Shape
from tests.models.dspark_streams import random_pair
from tests.models.test_small_drafter import CONFIG
from tests.row_invariance import bits, rows_of_normals
from tfjax.checkpoints.affine import AffineForm, dequantize, quantize
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.weights import LoadedModel
from tfjax.kernels.packed import PackedWeight
from tfjax.models import dspark, small_drafter

FORM = AffineForm(4, 32)


def pair(seed: int, rows: int, size: int) -> tuple[PackedWeight, jax.Array]:
    """A weight packed and dense."""
    parts = quantize(rows_of_normals(seed, rows, size, dtype=ml_dtypes.bfloat16), FORM)
    words, scales, biases = map(jnp.asarray, parts)
    packed = PackedWeight(words, scales, biases, FORM.bits, FORM.group_size, np.dtype(np.float32))
    return packed, jnp.asarray(dequantize(parts, FORM))


def same(one: Any, other: Any) -> bool:
    return np.array_equal(bits(one), bits(other))


@pytest.mark.parametrize("known", [64, 24], ids=["all tokens", "a part of them"])
def test_a_dspark_drafter_reads_what_the_target_has(known: int) -> None:
    shape = Shape(ids=tuple(range(known)))
    embedding, head = pair(1, shape.vocab, shape.hidden), pair(2, shape.vocab, shape.hidden)
    h, token = jnp.asarray(rows_of_normals(3, 5, shape.hidden)), jnp.array([7, 0, 63])
    found = []
    for at in (0, 1):
        module = random_pair(shape).module
        module.join(embedding[at], head[at], jnp.asarray(shape.ids, jnp.int32))
        found.append((module.logits(h), module.embedding[...][token]))
    assert all(same(*both) for both in zip(*found, strict=True))


@pytest.mark.parametrize("projected", [False, True])
def test_a_small_drafter_reads_what_the_target_has(projected: bool) -> None:
    config = replace(CONFIG, target_hidden=64, projected_head=projected)
    found = []
    for embedding in pair(1, config.vocab, 64):
        module = small_drafter.SmallDrafter(config, jnp.float32)
        if module.head_proj is not None:
            module.head_proj[...] = jnp.asarray(rows_of_normals(4, 64, config.body.hidden))
        module.join(embedding, jnp.arange(config.draft_vocab))
        found.append((module.head_weight, module.embedding[...][jnp.array([5, 2])]))
    assert all(same(*both) for both in zip(*found, strict=True))
    assert bool(np.any(found[0][0])) == projected


def test_what_is_shared_is_not_counted_again() -> None:
    shape = Shape()
    embedding, _ = pair(1, shape.vocab, shape.hidden)
    module = random_pair(shape).module
    own = LoadedModel(dspark.FAMILY, module.config, module, np.float32).weight_bytes
    own -= module.embedding[...].nbytes + module.head[...].nbytes
    module.join(embedding, embedding, jnp.asarray(shape.ids, jnp.int32))
    model = LoadedModel(dspark.FAMILY, module.config, module, np.float32)
    assert DraftingModel("x", "dspark", model, module.ids[...], shape.vocab, (embedding, embedding)).weight_bytes == own
