"""Tiny random Llamas, and streams of tokens run through them in forwards of chosen shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tfjax.engine.rows_buffer import RowsBuffer, Run, lay_out
from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles
from tfjax.models.blocks.rope import RopeConfig
from tfjax.models.llama import Llama, LlamaConfig, empty_cache
from tfjax.models.rows import Rows

TINY = LlamaConfig(
    vocab=64,
    hidden=32,
    inner=48,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=8,
    norm_eps=1e-5,
    rope=RopeConfig(10000.0),
    context=256,
    tied=True,
    attention_bias=False,
    mlp_bias=False,
)
ODD_HEADS = replace(TINY, hidden=24, heads=3, kv_heads=1, head_dim=6, attention_bias=True, mlp_bias=True, tied=False)
ONE_QUERY_HEAD = replace(TINY, heads=3, kv_heads=3, head_dim=16)


def random_llama(config: LlamaConfig, dtype: Any, seed: int = 0) -> Llama:
    """Weights large enough that every part changes the logits well above rounding."""
    model = Llama(config, dtype)
    random = np.random.default_rng(seed)

    def fill(leaf: jax.Array) -> jax.Array:
        return jnp.asarray(random.normal(0, 0.3, leaf.shape) + (leaf[:1] if leaf.ndim == 1 else 0), dtype)

    nnx.update(model, jax.tree.map(fill, nnx.state(model)))
    return model


@dataclass(frozen=True, slots=True)
class Part:
    """Positions [start, stop) of one stream, in a forward."""

    stream: int
    start: int
    stop: int


class Streams:
    """Token streams of one model, one lane each, with a cache of their own. A new one starts empty.

    Forwards have at least 4 rows: some processors' matrix units compute fewer another way.
    """

    LANES, PAGES = 3, 4

    def __init__(self, model: Any, *, lanes: Sequence[int] = (0, 1), empty_cache: Any = empty_cache):
        self.model = model
        self.lanes = lanes
        self.definition, self.parameters = nnx.split(model)
        config = model.config
        dtype = model.embedding[...].dtype
        self.cache: Any = empty_cache(config, 1 + self.LANES * self.PAGES, PAGE_ROWS, self.LANES + 1, dtype)
        pages = 1 + np.arange(self.LANES * self.PAGES).reshape(self.PAGES, self.LANES).T
        self.page_table = np.concatenate([pages, np.zeros((1, self.PAGES), int)]).astype(np.int32)
        self.tokens = np.random.default_rng(3).integers(0, config.vocab, (2, self.PAGES * PAGE_ROWS)).astype(np.int32)
        self.logits: dict[tuple[int, int], NDArray[np.float32]] = {}

    def rows(self, bucket: int, *parts: Part, tile_rows: int = 4) -> Rows:
        """The parts' rows, padded to `bucket`."""
        buffer = RowsBuffer(bucket)
        runs = [Run(self.lanes[part.stream], part.start, part.stop - part.start) for part in parts]
        lay_out(buffer, runs, tile_rows=tile_rows, scratch_lane=self.LANES)
        used = np.concatenate([self.tokens[part.stream, part.start : part.stop] for part in parts])
        token = np.zeros(bucket, np.int32)
        token[: len(used)] = used
        tiles = Tiles(buffer["tile_count"][0], buffer["tile_start"], buffer["tile_lane"], buffer["tile_last"])
        return Rows(token, buffer["lane"], buffer["position"], tiles, self.page_table)

    def forward(self, bucket: int, *parts: Part, tile_rows: int = 4) -> None:
        """Computes the parts' rows in one forward of `bucket` rows and keeps their logits."""
        rows = self.rows(bucket, *parts, tile_rows=tile_rows)
        logits, self.cache = _forward(self.definition, self.parameters, self.cache, rows, tile_rows)
        places = [(part.stream, position) for part in parts for position in range(part.start, part.stop)]
        self.logits.update(zip(places, np.asarray(logits), strict=False))

    def cached(self, stream: int, stop: int) -> list[NDArray[Any]]:
        """Keys and values of positions [0, stop), per layer. Shapes: [stop, K, H]."""
        pages = self.page_table[self.lanes[stream]]
        return [
            np.asarray(pool)[pages].swapaxes(1, 2).reshape(-1, *np.asarray(pool).shape[1::2])[:stop]
            for pool in jax.tree.leaves(self.cache)
        ]


def _run(definition: Any, parameters: Any, cache: Any, rows: Rows, tile_rows: int) -> Any:
    model: Any = nnx.merge(definition, parameters)
    hidden, cache, _ = model(cache, rows, tile_rows=tile_rows)
    return model.logits(hidden), cache


_forward = jax.jit(_run, static_argnums=(0, 4))
