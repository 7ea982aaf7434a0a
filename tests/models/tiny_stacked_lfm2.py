"""The tiny random LFM2s in stacked form, by the reference operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from tests.models.tiny_lfm2 import EXPERTS, MOE, Lfm2Streams, random_lfm2
from tests.models.tiny_stacked import KERNELS
from tfjax.engine.weights import LoadedModel
from tfjax.kernels.routes import Route
from tfjax.models.lfm2 import Lfm2
from tfjax.models.lfm2_config import Lfm2Config
from tfjax.models.lfm2_moe import FAMILY
from tfjax.models.lfm2_stacks import STACKS, shapes
from tfjax.models.stacked_lfm2 import STACKED, StackedLfm2

MIXED = replace(MOE, attends=(False, True) * 3 + (False,), dense_layers=2)
"""Every kind of layer, and a pattern that repeats: two dense layers, twice convolution and attention, a convolution."""

DENSE = replace(MOE, attends=(True, False, False, True), dense_layers=4, experts=None, taps=4, tied=False)
ALL_EXPERTS = replace(
    MOE,
    attends=(False, True, True, False, True, True),
    dense_layers=0,
    kv_heads=1,
    experts=replace(EXPERTS, count=5, picked=3, biased=False, normalised=False, scale=2.5),
)
CONVOLUTIONS = replace(MOE, attends=(False,) * 4, dense_layers=2)
ATTENTION = replace(MOE, attends=(True,) * 3)


def stacked_form(model: Lfm2) -> StackedLfm2:
    """The same parameters, copied by the definition of the stacks and not by the sources of checkpoints."""
    made = StackedLfm2(model.config, model.embedding[...].dtype, Route.REFERENCE)
    flat = {".".join(map(str, path)): leaf[...] for path, leaf in nnx.to_flat_state(nnx.state(model))}
    made.embedding = nnx.Param(jnp.array(flat["embedding"]))
    made.head = nnx.Param(jnp.array(flat["head"])) if "head" in flat else None
    for stack, shape in shapes(model.config).items():
        paths = [f"layers.{layer}.{STACKS[stack]}" for layer in range(model.config.layers)]
        parts = [np.asarray(flat[path]) for path in paths if path in flat]
        if stack == "operator_norm":
            parts.append(np.asarray(flat["norm.weight"]))
        whole = np.zeros(shape, parts[0].dtype)
        each = len(whole) // len(parts)
        for number, part in enumerate(parts):
            own = part.T if stack == "taps" else part
            if stack.startswith("expert_"):
                whole[number * each : (number + 1) * each] = own
            else:
                whole[number, : len(own)] = own
        setattr(made, stack, nnx.Param(jnp.asarray(whole)))
    return made


def loaded_stacked(config: Lfm2Config, dtype: Any, seed: int = 0) -> LoadedModel:
    return LoadedModel(FAMILY, config, stacked_form(random_lfm2(config, dtype, seed)), dtype, KERNELS)


class StackedStreams(Lfm2Streams):
    """Streams of a stacked model with a cache that is NaN where nothing was written."""

    def __init__(self, model: StackedLfm2, **changes: Any):
        super(Lfm2Streams, self).__init__(model, empty_cache=STACKED.empty_cache, **changes)
        self.cache = jax.tree.map(lambda pool: jnp.full_like(pool, jnp.nan), self.cache)
