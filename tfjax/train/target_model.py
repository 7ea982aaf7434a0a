"""The small target as it is trained: float32 parameters, bfloat16 forward, and the files that it becomes."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from tfjax.checkpoints.cache import write_atomically
from tfjax.train.lfm2_dense import Lfm2Shape, Lfm2Weights, run_layers
from tfjax.train.lfm2_names import flatten
from tfjax.train.small_dense import Places, product, rms_norm
from tfjax.train.target_config import TargetConfig

EMBEDDING_SCALE = 0.03
ADDS_TO_RESIDUAL = frozenset({"out", "conv_out", "w2"})

type Biases = tuple[jax.Array, ...]
"""Router bias of each layer with experts, in order. Shape: float32 [E]."""


class Logits(NamedTuple):
    """Of a batch: float32 [B, T, V], and how often each expert was picked, layer by layer."""

    logits: jax.Array
    loads: list[jax.Array]


def random_params(config: TargetConfig, seed: int) -> Lfm2Weights:
    """First parameters: activations of unit size, small residual branches, small logits. Routers have no bias here."""
    params: Lfm2Weights = _random(config, seed)
    return params


def zero_biases(config: TargetConfig) -> Biases:
    """First router biases."""
    return tuple(jnp.zeros(config.experts, jnp.float32) for _ in range(config.dense_layers, config.layers))


def with_biases(params: Lfm2Weights, biases: Biases) -> Lfm2Weights:
    """Parameters with their router biases, which are learned in another way."""
    rest = iter(biases)
    layers = [{**layer, "expert_bias": next(rest)} if "gate" in layer else layer for layer in params.layers]
    return params._replace(layers=layers)


def logits(params: Lfm2Weights, biases: Biases, token: jax.Array, shape: Lfm2Shape) -> Logits:
    """The model's logits, computed in bfloat16; each row is one stream. Shape: token int32 [B, T]."""
    low: Lfm2Weights = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    # Rows are taken before they are rounded, so that the gradients of a frequent token add up in float32.
    x = params.embedding[token].astype(jnp.bfloat16)
    run = run_layers(x, with_biases(low, biases).layers, shape, one_stream(*token.shape))
    x = rms_norm(run.hidden, low.norm, shape.norm_eps)
    return Logits(product(x, low.embedding).astype(jnp.float32), run.loads)


def one_stream(batch: int, length: int) -> Places:
    """Every token sees all before it in its row."""
    index = jnp.arange(length)
    return Places(jnp.broadcast_to(index, (batch, length)), (index[:, None] >= index)[None, None])


def save(directory: Path, params: Lfm2Weights, biases: Biases, config: TargetConfig) -> int:
    """Write model.safetensors and both configs. Returns the bytes of the weights file."""
    from safetensors.numpy import save as to_bytes

    tensors = {
        name: value if name.endswith("expert_bias") else np.ascontiguousarray(value).astype(ml_dtypes.bfloat16)
        for name, value in flatten(jax.device_get(with_biases(params, biases)))
    }
    data = to_bytes(tensors, {"format": "pt"})
    write_atomically(directory / "model.safetensors", data)
    _write_json(directory / "config.json", config.to_hf())
    _write_json(directory / "generation_config.json", config.generation_hf())
    return len(data)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())


@functools.partial(jax.jit, static_argnums=0)
def _random(config: TargetConfig, seed: int) -> Lfm2Weights:
    branch = 1 / math.sqrt(2 * config.layers)
    key = jax.random.key(seed)

    def tensor(layer: int, number: int, name: str, shape: tuple[int, ...]) -> jax.Array:
        if len(shape) == 1:
            return jnp.ones(shape)
        scale = (branch if name in ADDS_TO_RESIDUAL else 1) / math.sqrt(shape[-1])
        return scale * jax.random.normal(jax.random.fold_in(key, 64 * (layer + 1) + number), shape, jnp.float32)

    layers = []
    for layer in range(config.layers):
        shapes = config.layer_tensors(layer)
        shapes.pop("expert_bias", None)
        layers.append({name: tensor(layer, number, name, shapes[name]) for number, name in enumerate(shapes)})
    embedding = EMBEDDING_SCALE * jax.random.normal(key, (config.vocab, config.hidden), jnp.float32)
    return Lfm2Weights(embedding, layers, jnp.ones(config.hidden))
