"""The tiny random Llamas in stacked form, by the reference operators."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import nnx

from tests.models.tiny import random_llama
from tfjax.engine.kernel_choice import Kernels
from tfjax.engine.weights import LoadedModel
from tfjax.kernels.routes import Route
from tfjax.models.llama import FAMILY, Llama, LlamaConfig
from tfjax.models.stacked_llama import StackedLlama, stacked

KERNELS = Kernels(Route.REFERENCE, "a test", stacked=True)


def stacked_form(model: Llama) -> StackedLlama:
    """The same parameters; they are copied, so that either may be given away."""
    weights = stacked(model)
    made = StackedLlama(model.config, weights.embedding.dtype, Route.REFERENCE)
    for name, value in weights._asdict().items():
        if name != "head" and value is not None:
            setattr(made, name, nnx.Param(jnp.array(value)))
    made.head = None if model.head is None else nnx.Param(jnp.array(model.head[...]))
    return made


def loaded_stacked(config: LlamaConfig, dtype: Any, seed: int = 0) -> LoadedModel:
    return LoadedModel(FAMILY, config, stacked_form(random_llama(config, dtype, seed)), dtype, KERNELS)
