"""Names: what is written is read again, and serving finds every tensor that it wants."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tests.train import tiny_lfm2
from tfjax.models import lfm2_moe
from tfjax.train.lfm2_names import flatten, read_weights


def test_what_is_written_is_read_again() -> None:
    weights = tiny_lfm2.weights()
    files = dict(flatten(weights))
    found = read_weights(files, files.__getitem__, jnp.float32)
    expected = weights._replace(layers=tuple(dict(layer) for layer in weights.layers))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_only_router_biases_stay_float32() -> None:
    files = dict(flatten(tiny_lfm2.weights()))
    found = read_weights(files, files.__getitem__, jnp.bfloat16)
    wide = [name for layer in found.layers for name, value in layer.items() if value.dtype == jnp.float32]
    assert wide == ["expert_bias"] * 2


def test_serving_wants_these_tensors_in_these_shapes() -> None:
    files = {name: value.shape for name, value in flatten(tiny_lfm2.weights())}
    config = lfm2_moe.FAMILY.config_from_hf(tiny_lfm2.CONFIG.to_hf())
    wanted = {part.name: part.shape for parts in lfm2_moe.FAMILY.sources(config).values() for part in parts}
    assert files == wanted == tiny_lfm2.CONFIG.file_tensors()
