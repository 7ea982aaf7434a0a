"""LFM2's tensors: their names in a checkpoint, and the weights that the dense forward takes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.train.lfm2_dense import Lfm2Weights

EMBEDDING, FINAL_NORM = "model.embed_tokens.weight", "model.embedding_norm.weight"

LAYER_TENSORS: Mapping[str, str] = {
    "operator_norm": "operator_norm.weight",
    "ffn_norm": "ffn_norm.weight",
    "conv_in": "conv.in_proj.weight",
    "conv": "conv.conv.weight",
    "conv_out": "conv.out_proj.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "out": "self_attn.out_proj.weight",
    "q_norm": "self_attn.q_layernorm.weight",
    "k_norm": "self_attn.k_layernorm.weight",
    "gate": "feed_forward.gate.weight",
    "expert_bias": "feed_forward.expert_bias",
    "w1": "feed_forward.w1.weight",
    "w3": "feed_forward.w3.weight",
    "w2": "feed_forward.w2.weight",
}
"""Name in a layer's weights -> name in a checkpoint, after `model.layers.N.`."""

EXPERT_TENSORS: Mapping[str, str] = {name: f"feed_forward.experts.{{}}.{name}.weight" for name in ("w1", "w3", "w2")}
"""The same of tensors that each expert has; in a layer's weights the experts are stacked."""


def file_name(layer: int, name: str) -> str:
    """A layer's tensor in a checkpoint."""
    return f"model.layers.{layer}.{LAYER_TENSORS[name]}"


def flatten(weights: Lfm2Weights) -> Iterator[tuple[str, NDArray[Any]]]:
    """Every tensor of a checkpoint with its name; the convolution has the singular axis of the published files."""
    yield EMBEDDING, np.asarray(weights.embedding)
    yield FINAL_NORM, np.asarray(weights.norm)
    for number, layer in enumerate(weights.layers):
        for name, value in layer.items():
            array = np.asarray(value)
            if name in EXPERT_TENSORS and array.ndim == 3:
                for expert, part in enumerate(array):
                    yield f"model.layers.{number}.{EXPERT_TENSORS[name].format(expert)}", part
            else:
                yield file_name(number, name), array[:, None] if name == "conv" else array


def read_weights(names: Collection[str], read: Callable[[str], NDArray[Any]], dtype: jnp.dtype | type) -> Lfm2Weights:
    """The weights of a checkpoint on the device; `expert_bias` stays float32.

    Args:
        names: the checkpoint's tensors, with a tensor for each expert.
        read: gives one of them.
    """
    layers = []
    for number in itertools.count():
        if file_name(number, "operator_norm") not in names:
            break
        layers.append(dict(_layer(number, names, read, dtype)))
    return Lfm2Weights(jnp.asarray(read(EMBEDDING), dtype), tuple(layers), jnp.asarray(read(FINAL_NORM), dtype))


def _layer(
    number: int, names: Collection[str], read: Callable[[str], NDArray[Any]], dtype: jnp.dtype | type
) -> Iterator[tuple[str, jax.Array]]:
    for name in LAYER_TENSORS:
        if (path := file_name(number, name)) in names:
            array = read(path)
            array = array.reshape(array.shape[0], -1) if name == "conv" else array
            yield name, jnp.asarray(array, jnp.float32 if name == "expert_bias" else dtype)
    for name, pattern in EXPERT_TENSORS.items():
        paths = (f"model.layers.{number}.{pattern.format(expert)}" for expert in itertools.count())
        parts = [read(path) for path in itertools.takewhile(names.__contains__, paths)]
        if parts:
            yield name, jnp.asarray(np.stack(parts), dtype)
