"""Logits as serving computes them, row by row over the paged cache."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tfjax.checkpoints import open_checkpoint
from tfjax.engine.rows_buffer import RowsBuffer, Run, lay_out
from tfjax.kernels.matmul import rows_matmul
from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles
from tfjax.models.family import Family
from tfjax.models.rows import Rows


def load(directory: Path, family: Family[Any], dtype: Any = jnp.bfloat16) -> Any:
    """The module with a checkpoint's weights."""
    checkpoint = open_checkpoint(directory)
    config = family.config_from_hf(checkpoint.config)
    module: Any = family.build(config, dtype)
    flat = dict(nnx.to_flat_state(nnx.state(module)))
    for path, parts in family.sources(config).items():
        key = tuple(int(part) if part.isdigit() else part for part in path.split("."))
        value = np.concatenate([checkpoint.tensors.read(part.name) for part in parts])
        like = flat[key][...]
        flat[key] = flat[key].replace(jnp.asarray(value.reshape(like.shape), like.dtype))
    nnx.update(module, nnx.from_flat_state(flat))
    return module


def logits(module: Any, family: Family[Any], tokens: list[int]) -> NDArray[np.float32]:
    """Of one sequence in one forward. Shape: [tokens, head rows]."""
    assert len(tokens) <= PAGE_ROWS
    buffer = RowsBuffer(PAGE_ROWS)
    lay_out(buffer, [Run(0, 0, len(tokens))], tile_rows=4, scratch_lane=1)
    token = np.zeros(PAGE_ROWS, np.int32)
    token[: len(tokens)] = tokens
    tiles = Tiles(buffer["tile_count"][0], buffer["tile_start"], buffer["tile_lane"], buffer["tile_last"])
    rows = Rows(token, buffer["lane"], buffer["position"], tiles, np.array([[1], [0]], np.int32))
    cache = family.empty_cache(module.config, 2, PAGE_ROWS, 2, module.head_weight.dtype)
    return np.asarray(_logits(*nnx.split(module), cache, rows), np.float32)[: len(tokens)]


@functools.partial(jax.jit, static_argnums=0)
def _logits(definition: Any, state: Any, cache: Any, rows: Rows) -> Any:
    module = nnx.merge(definition, state)
    hidden, _, _ = module(cache, rows, tile_rows=4)
    return rows_matmul(hidden, module.head_weight)
