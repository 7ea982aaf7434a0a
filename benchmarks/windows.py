"""A forward of one stream's rows behind a long context, as a program of its own: Llamas of published sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from tfjax.engine.weights import LoadedModel
from tfjax.kernels.paged_attention import BLOCK_KEYS, PAGE_ROWS, Tiles
from tfjax.kernels.specs import Spec
from tfjax.models.blocks.rope import RopeConfig
from tfjax.models.llama import LlamaConfig
from tfjax.models.rows import Rows

SCRATCH = 1
"""The lane of rows that pad; lane 0 is the stream's."""


def llama_of(spec: Spec, layers: int, *, tied: bool = False) -> LlamaConfig:
    """A Llama of these sizes."""
    return LlamaConfig(
        vocab=spec.vocab,
        hidden=spec.hidden,
        inner=spec.inner,
        layers=layers,
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        norm_eps=1e-5,
        rope=RopeConfig(500_000.0),
        context=1 << 17,
        tied=tied,
        attention_bias=False,
        mlp_bias=False,
    )


def read_bytes(config: LlamaConfig, past: int = 0, itemsize: int = 2) -> int:
    """What a window has to read at least: all weights but the embedding, and keys and values of the context."""
    layer = config.hidden * (config.heads + 2 * config.kv_heads) * config.head_dim
    layer += config.heads * config.head_dim * config.hidden + 3 * config.hidden * config.inner
    weights = config.layers * layer + config.vocab * config.hidden
    return itemsize * (weights + 2 * config.layers * past * config.kv_heads * config.head_dim)


class Windows:
    """One model with a cache of its own, run on windows of any rows.

    Attributes:
        model: in stacked form where kernels run it.
        tile_rows: rows that attention takes at a time.
    """

    def __init__(self, model: LoadedModel, capacity: int, tile_rows: int) -> None:
        self.model, self.tile_rows = model, tile_rows
        self._pages = -(-capacity // BLOCK_KEYS) * (BLOCK_KEYS // PAGE_ROWS)
        self._cache = model.empty_cache(1 + self._pages, SCRATCH + 1)
        self._program = _program(model, tile_rows)

    def call(self, rows: int, bucket: int, past: int, *, drawn: int | None = None) -> Callable[[], jax.Array]:
        """A call that computes `rows` positions after `past` others, padded to `bucket`, and gives logits.

        `drawn` of the last rows get them; None is all of the bucket.
        """
        shared, draws = self._rows(rows, bucket, past), self._draws(rows, bucket, drawn)
        parameters = nnx.state(self.model.module)

        def call() -> jax.Array:
            logits: jax.Array
            logits, self._cache = self._program(parameters, self._cache, shared, draws)
            return logits

        return call

    def _draws(self, rows: int, bucket: int, drawn: int | None) -> jax.Array:
        return jnp.arange(bucket) if drawn is None else jnp.full(drawn, rows - 1)

    def _rows(self, rows: int, bucket: int, past: int) -> Rows:
        """Tokens depend on their place alone, so that windows of other rows compute the same ones."""
        tokens = np.random.default_rng(0).integers(0, self.model.config.vocab, 1 << 15).astype(np.int32)
        token, position = np.zeros(bucket, np.int32), np.zeros(bucket, np.int32)
        lane = np.full(bucket, SCRATCH, np.int32)
        position[:rows], lane[:rows] = past + np.arange(rows), 0
        token[:rows] = tokens[position[:rows] % len(tokens)]
        tile = min(self.tile_rows, bucket)
        used = -(-rows // tile)
        start, owner, last = np.zeros((3, bucket), np.int32)
        start[:used] = np.arange(used) * tile
        last[:used] = past + np.minimum(start[:used] + tile, rows) - 1
        table = np.zeros((SCRATCH + 1, self._pages), np.int32)
        table[0] = 1 + np.random.default_rng(1).permutation(self._pages)
        tiles = Tiles(*(jnp.asarray(x) for x in (np.int32(used), start, owner, last)))
        return Rows(jnp.asarray(token), jnp.asarray(lane), jnp.asarray(position), tiles, jnp.asarray(table))


def _program(model: LoadedModel, tile_rows: int) -> Callable[..., Any]:
    """One window, jitted: parameters, cache (donated), rows and those that are drawn, to logits and cache."""
    definition, _ = nnx.split(model.module)

    def step(parameters: Any, cache: Any, rows: Rows, draws: jax.Array) -> Any:
        module: Any = nnx.merge(definition, parameters)
        done = module(cache, rows, tile_rows=min(tile_rows, len(rows.token)))
        return module.logits(done.hidden[draws]), done.cache

    return jax.jit(step, donate_argnums=1)
