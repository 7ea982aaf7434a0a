"""Tiny MLX-format directories for tests: packed weights beside plain ones, in the layouts that are met."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.checkpoints.hf_files import write_directory
from tfjax.checkpoints.affine import AffineForm, dequantize, quantize

FORM, GATE_FORM = AffineForm(4, 64), AffineForm(8, 64)
HIDDEN, FF, INNER, EXPERTS, VOCAB, TAPS = 64, 128, 64, 3, 6, 3
BASE: Mapping[str, Any] = {
    "hidden_size": HIDDEN,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": VOCAB,
}
USUAL: Mapping[str, Any] = {"group_size": 64, "bits": 4, "mode": "affine"}

type Arrays = dict[str, NDArray[Any]]


def draw(name: str, shape: tuple[int, ...], dtype: Any = ml_dtypes.bfloat16) -> NDArray[Any]:
    """Random values, fixed by the name."""
    return np.random.default_rng(sum(name.encode())).standard_normal(shape).astype(dtype)


def moe_weights() -> Arrays:
    """Under published names: a dense conv layer, then an attention layer with experts."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.embedding_norm.weight": (HIDDEN,),
        "model.layers.0.operator_norm.weight": (HIDDEN,),
        "model.layers.0.conv.in_proj.weight": (3 * HIDDEN, HIDDEN),
        "model.layers.0.conv.conv.weight": (HIDDEN, 1, TAPS),
        "model.layers.0.feed_forward.w1.weight": (FF, HIDDEN),
        "model.layers.0.feed_forward.w3.weight": (FF, HIDDEN),
        "model.layers.0.feed_forward.w2.weight": (HIDDEN, FF),
        "model.layers.1.self_attn.q_proj.weight": (HIDDEN, HIDDEN),
        "model.layers.1.feed_forward.gate.weight": (EXPERTS, HIDDEN),
    }
    for expert in range(EXPERTS):
        at = f"model.layers.1.feed_forward.experts.{expert}"
        shapes |= {f"{at}.w1.weight": (INNER, HIDDEN), f"{at}.w3.weight": (INNER, HIDDEN)}
        shapes[f"{at}.w2.weight"] = (HIDDEN, INNER)
    arrays = {name: draw(name, shape) for name, shape in shapes.items()}
    bias = "model.layers.1.feed_forward.expert_bias"
    return arrays | {bias: draw(bias, (EXPERTS,), np.float32)}


def packed(module: str, weight: NDArray[Any], form: AffineForm = FORM) -> Arrays:
    """The three tensors of a quantized module."""
    words, scales, biases = quantize(weight, form)
    return {f"{module}.weight": words, f"{module}.scales": scales, f"{module}.biases": biases}


def rounded(weight: NDArray[Any], form: AffineForm = FORM) -> NDArray[np.float32]:
    """What is left of a weight after quantization."""
    values: NDArray[np.float32] = dequantize(quantize(weight, form), form)
    return values


def is_plain(name: str) -> bool:
    return "norm" in name or name.endswith(("expert_bias", "conv.conv.weight"))


def expected(form: AffineForm = FORM) -> Arrays:
    """What reading an MLX directory of `moe_weights` gives, by published name."""
    found = {}
    for name, array in moe_weights().items():
        own = GATE_FORM if name.endswith("feed_forward.gate.weight") else form
        found[name] = array if is_plain(name) else rounded(array, own)
    return found


def mlx_weights(*, stacked: bool = True, prefix: str = "", form: AffineForm = FORM) -> Arrays:
    """`moe_weights` as MLX's lfm2_moe stores them.

    Args:
        stacked: experts in `switch_mlp`; otherwise one by one.
        prefix: put before every name.
    """
    source, arrays = moe_weights(), dict[str, NDArray[Any]]()
    for name, array in source.items():
        if ".experts." in name and stacked:
            continue
        arrays |= _stored(name, array, GATE_FORM if name.endswith("feed_forward.gate.weight") else form)
    if stacked:
        at = "model.layers.1.feed_forward"
        for ours, theirs in (("w1", "gate_proj"), ("w3", "up_proj"), ("w2", "down_proj")):
            stack = np.stack([source[f"{at}.experts.{expert}.{ours}.weight"] for expert in range(EXPERTS)])
            arrays |= packed(f"{at}.switch_mlp.{theirs}", stack, form)
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def _stored(name: str, array: NDArray[Any], form: AffineForm) -> Arrays:
    if name.endswith("conv.conv.weight"):
        return {name: np.ascontiguousarray(array.swapaxes(1, 2))}
    if is_plain(name):
        return {name: array}
    module = name.removesuffix(".weight")
    if "layers.0.feed_forward" in module:
        for ours, theirs in (("w1", "gate_proj"), ("w3", "up_proj"), ("w2", "down_proj")):
            module = module.replace(f".{ours}", f".{theirs}")
    return packed(module, array, form)


def mlx_config(*, architecture: str = "Lfm2MoeForCausalLM", prefix: str = "", **entries: Any) -> dict[str, Any]:
    """config.json with the gate's entry, and `entries` added to `quantization` (None takes one out)."""
    gate = {f"{prefix}model.layers.1.feed_forward.gate": {"group_size": 64, "bits": 8}}
    stated = {key: value for key, value in {**USUAL, **gate, **entries}.items() if value is not None}
    return {**BASE, "architectures": [architecture], "quantization": stated, "quantization_config": stated}


def write_mlx(directory: Path, *, config: Mapping[str, Any] | None = None, tensors: Arrays | None = None) -> Path:
    """Writes the directory; by default `mlx_weights` with `mlx_config`."""
    return write_directory(
        directory,
        config=mlx_config() if config is None else config,
        tensors=mlx_weights() if tensors is None else tensors,
    )
