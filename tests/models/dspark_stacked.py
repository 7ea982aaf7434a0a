"""The tiny random DSpark drafters in stacked form, by the reference operators, driven as the modules are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from tests.models.dspark_streams import BlockStreams
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.routes import Route
from tfjax.models.dspark import DSpark
from tfjax.models.stacked_dspark import STACKS, StackedDSpark, empty_cache


def stacked_form(module: DSpark) -> StackedDSpark:
    """The same parameters; those of layers are copied."""
    made: StackedDSpark = nnx.eval_shape(
        lambda: StackedDSpark(module.config, module.fc.weight[...].dtype, Route.REFERENCE)
    )
    own: dict[Any, Any] = dict(nnx.to_flat_state(nnx.state(module)))
    flat: dict[Any, Any] = {key: own.get(key, value) for key, value in nnx.to_flat_state(nnx.state(made))}

    def of(layer: int, name: str) -> jax.Array:
        value: jax.Array = own["layers", layer, *name.split(".")].get_value()
        return value

    for stack, names in STACKS.items():
        if (stack,) in flat:
            layers = [jnp.concatenate([of(i, name) for name in names]) for i in range(module.config.layers)]
            last = [module.norm.weight[...]] if stack == "attention_norm" else []
            flat[stack,] = flat[stack,].replace(jnp.stack(layers + last))
    nnx.update(made, nnx.from_flat_state(flat))
    if module.markov.row is not None:
        made.markov.row = nnx.Param(module.markov.row[...])
    return made


class StackedStreams(BlockStreams):
    """The scratch page too holds NaN: no row is stored there."""

    def __init__(self, module: Any, streams: int, tile_rows: int = 4):
        super().__init__(module, streams, tile_rows)
        empty = empty_cache(module.config, 1 + streams * self.PAGES, PAGE_ROWS, 0, jnp.float32)
        self.cache: Any = jax.tree.map(lambda pool: jnp.full_like(pool, jnp.nan), empty)
