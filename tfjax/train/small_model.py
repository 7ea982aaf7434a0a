"""The small drafter as it is trained: float32 parameters, bfloat16 forward, and the file that it becomes."""

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
from numpy.typing import NDArray

from tfjax.checkpoints.cache import write_atomically
from tfjax.train.small_config import SmallConfig
from tfjax.train.small_dense import LAYER_TENSORS, Places, Shape, Weights, product, rms_norm, run_layers

type Params = dict[str, Any]
"""embed_proj, layers (each tensor stacked over the layers), norm, head."""


class Frozen(NamedTuple):
    """What the drafter reads of the target.

    Attributes:
        embedding: bfloat16 [V, target D].
        draft_rows: the embedding's rows of the draft vocabulary; without them a drafter with a head of its own does.
        draft_of: draft id of each token, -1 where it cannot be drafted. Shape: int32 [V].
        draft_ids: the other way round. Shape: int32 [Vd].
    """

    embedding: jax.Array
    draft_rows: jax.Array | None
    draft_of: jax.Array
    draft_ids: jax.Array


def frozen_parts(embedding: NDArray[Any], draft_ids: NDArray[np.int32], *, projected_head: bool) -> Frozen:
    """Put the target's parts on the device."""
    draft_of = np.full(len(embedding), -1, np.int32)
    draft_of[draft_ids] = np.arange(len(draft_ids))
    table = jnp.asarray(embedding, jnp.bfloat16)
    rows = table[draft_ids] if projected_head else None
    return Frozen(table, rows, jnp.asarray(draft_of), jnp.asarray(draft_ids))


def random_params(config: SmallConfig, embedding: NDArray[Any], seed: int) -> Params:
    """Initial parameters: activations of unit size, small residual branches, small logits."""
    size = np.sqrt(np.mean(np.square(embedding.astype(np.float32)))) * math.sqrt(config.target_hidden)
    params: Params = _random(config, size, seed)
    return params


@functools.partial(jax.jit, static_argnums=0)
def _random(config: SmallConfig, size: jax.Array, seed: int) -> Params:
    """`size` is the length of a typical row of the target's embedding."""
    branch = 1 / math.sqrt(2 * config.layers)
    scales = {"o": branch, "down": branch}
    keys = iter(jax.random.split(jax.random.key(seed), 2 + len(LAYER_TENSORS)))

    def normal(shape: tuple[int, ...], scale: jax.Array | float) -> jax.Array:
        return scale * jax.random.normal(next(keys), shape, jnp.float32)

    def layer_tensor(name: str) -> jax.Array:
        shape = (config.layers, *config.tensors()[_file_name(0, name)])
        return jnp.ones(shape) if len(shape) == 2 else normal(shape, scales.get(name, 1) / math.sqrt(shape[-1]))

    return {
        "embed_proj": normal((config.hidden, config.target_hidden), 1 / size),
        "layers": {name: layer_tensor(name) for name in LAYER_TENSORS},
        "norm": jnp.ones(config.hidden),
        "head": normal(_head_shape(config), 0.3 / (size if config.projected_head else 1) / math.sqrt(config.hidden)),
    }


def shape_of(config: SmallConfig) -> Shape:
    return Shape(config.heads, config.kv_heads, config.head_dim, config.norm_eps, config.rope)


def student_logits(params: Params, frozen: Frozen, token: jax.Array, config: SmallConfig, at: Places) -> jax.Array:
    """The drafter's logits, computed in bfloat16. Shapes: token int32 [B, T] -> float32 [B, T, Vd]."""
    low: Params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    x = product(frozen.embedding[token], low["embed_proj"])
    x = rms_norm(run_layers(x, low["layers"], shape_of(config), at), low["norm"], config.norm_eps)
    return product(x, head_rows(low["head"], frozen)).astype(jnp.float32)


def head_rows(head: jax.Array, frozen: Frozen) -> jax.Array:
    """The head that serving multiplies with: its own, or the target's rows through the projection. Shape: [Vd, D]."""
    return head if frozen.draft_rows is None else frozen.draft_rows @ head


def save(directory: Path, params: Params, config: SmallConfig, draft_ids: NDArray[np.int32]) -> int:
    """Write model.safetensors and config.json. Returns the bytes of the weights file."""
    from safetensors.numpy import save as to_bytes

    tensors = {name: np.asarray(value).astype(ml_dtypes.bfloat16) for name, value in _flat(params, config).items()}
    if config.reduced:
        tensors["d2t"] = draft_ids.astype(np.int64) - np.arange(len(draft_ids))
    data = to_bytes(tensors, {"format": "pt"})
    write_atomically(directory / "model.safetensors", data)
    write_atomically(directory / "config.json", (json.dumps(config.to_hf(), indent=2) + "\n").encode())
    return len(data)


def _flat(params: Params, config: SmallConfig) -> dict[str, Any]:
    layers: Weights = params["layers"]
    flat = {_file_name(i, name): stacked[i] for name, stacked in layers.items() for i in range(config.layers)}
    head = "head_proj.weight" if config.projected_head else "lm_head.weight"
    return flat | {"embed_proj.weight": params["embed_proj"], "model.norm.weight": params["norm"], head: params["head"]}


def _file_name(layer: int, name: str) -> str:
    return f"model.layers.{layer}.{LAYER_TENSORS[name]}.weight"


def _head_shape(config: SmallConfig) -> tuple[int, ...]:
    return config.tensors()["head_proj.weight" if config.projected_head else "lm_head.weight"]
