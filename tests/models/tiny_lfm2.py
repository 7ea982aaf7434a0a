"""Tiny random LFM2s, dense and with experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from tests.models.tiny import Streams
from tfjax.engine.cached_rows import rows_by_position
from tfjax.models.blocks.experts import ExpertsConfig
from tfjax.models.blocks.rope import RopeConfig
from tfjax.models.lfm2 import Lfm2, empty_cache
from tfjax.models.lfm2_config import Lfm2Config

EXPERTS = ExpertsConfig(count=8, picked=2, inner=16, biased=True, normalised=True, scale=1.0)
MOE = Lfm2Config(
    vocab=64,
    hidden=32,
    inner=48,
    attends=(False, True, False),
    heads=4,
    kv_heads=2,
    norm_eps=1e-5,
    rope=RopeConfig(1_000_000.0),
    taps=3,
    conv_bias=False,
    context=256,
    tied=True,
    dense_layers=1,
    experts=EXPERTS,
)
DENSE = replace(MOE, dense_layers=3, experts=None, conv_bias=True, taps=4, tied=False, attends=(True, False, False))


def random_lfm2(config: Lfm2Config, dtype: Any, seed: int = 0) -> Lfm2:
    """Weights large enough that every part changes the logits well above rounding."""
    model = Lfm2(config, dtype)
    random = np.random.default_rng(seed)

    def fill(leaf: jax.Array) -> jax.Array:
        return jnp.asarray(random.normal(0, 0.3, leaf.shape) + (leaf[:1] if leaf.ndim == 1 else 0), leaf.dtype)

    nnx.update(model, jax.tree.map(fill, nnx.state(model)))
    return model


class Lfm2Streams(Streams):
    """Streams with a cache that is NaN where nothing was written, as after other streams at their worst."""

    def __init__(self, model: Lfm2, **changes: Any):
        super().__init__(model, empty_cache=empty_cache, **changes)
        self.cache = jax.tree.map(lambda pool: jnp.full_like(pool, jnp.nan), self.cache)

    def state(self, stream: int, stop: int) -> dict[str, Any]:
        """Bytes of the cache at positions [0, stop)."""
        lane = self.lanes[stream]
        return rows_by_position(self.cache, self.page_table[lane].tolist(), lane, stop)
