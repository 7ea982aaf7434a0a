"""A trained DSpark drafter's files: the published tensor names, in bfloat16 or in MLX's 8-bit form, and config.json."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints.affine import AffineForm, dequantize, quantize
from tfjax.checkpoints.cache import write_atomically
from tfjax.models.dspark_config import DSparkConfig
from tfjax.train.dense_target import TargetShape
from tfjax.train.dspark_dense import Params
from tfjax.train.dspark_model import CONFIDENCE, published, shapes

BITS = (16, 8)
GROUP_SIZES = (64, 32)
MODEL, CONFIG = "model.safetensors", "config.json"
MIB = 1 << 20


def form_of(name: str, shape: tuple[int, ...], bits: int) -> AffineForm | None:
    """How a tensor is quantized; None for vectors, the confidence head, and columns that no group size divides."""
    sizes = [size for size in GROUP_SIZES if shape[-1] % size == 0]
    if bits == 16 or len(shape) < 2 or not sizes or name in CONFIDENCE.values():
        return None
    return AffineForm(bits, sizes[0])


def save(
    directory: Path, params: Params, config: DSparkConfig, draft_ids: NDArray[np.int32], bits: int, hf: dict[str, Any]
) -> int:
    """Write model.safetensors and config.json, the latter with what tells the quantization. Returns the bytes of both.

    Args:
        hf: config.json otherwise.
    """
    from safetensors.numpy import save as to_bytes

    forms = {name: form_of(name, value.shape, bits) for name, value in published(params)}
    tensors: dict[str, NDArray[Any]] = dict(_stored(params, forms))
    if config.draft_vocab < config.vocab:
        tensors["d2t"] = draft_ids.astype(np.int64) - np.arange(len(draft_ids))
    data = to_bytes(tensors, {"format": "pt"})
    told = (json.dumps(hf | _quantization(forms), indent=2) + "\n").encode()
    write_atomically(directory / MODEL, data)
    write_atomically(directory / CONFIG, told)
    return len(data) + len(told)


def served(params: Params, bits: int) -> Params:
    """The parameters as serving reads them from the file, in bfloat16; the confidence head in float32."""
    if bits == 16:
        return _low(params)

    def rounded(path: Any, leaf: jax.Array) -> Any:
        values = np.asarray(leaf)
        confidence = str(path[0].key) == "confidence"
        # Layers are stacked here and apart in the file, with the same columns.
        if confidence or values.ndim - (str(path[0].key) == "layers") < 2:
            return values
        form = form_of("", values.shape, bits)
        return values if form is None else dequantize(quantize(values.astype(ml_dtypes.bfloat16), form), form)

    return _low(jax.tree.map_with_path(rounded, params))


def _low(params: Params) -> Params:
    low: Params = jax.tree.map(lambda leaf: np.asarray(leaf).astype(ml_dtypes.bfloat16), params)
    return low | {"confidence": jax.tree.map(np.asarray, params["confidence"])}


def file_bytes(config: DSparkConfig, bits: int) -> int:
    """Bytes of the tensors in model.safetensors; its header of a few kilobytes is not counted."""
    return sum(part_bytes(config, bits).values())


def part_bytes(config: DSparkConfig, bits: int) -> dict[str, int]:
    """The same by the parts of a drafter."""
    parts: dict[str, int] = {}
    leaves = jax.tree.leaves_with_path(shapes(config), is_leaf=lambda leaf: isinstance(leaf, tuple))
    for path, shape in leaves:
        part = str(path[0].key)
        width = 4 if part == "confidence" else 2
        vector = len(shape) - (part == "layers") < 2
        form = None if vector or part == "confidence" else form_of("", shape, bits)
        bits_each = 8 * width if form is None else form.bits + 32 / form.group_size
        parts[part] = parts.get(part, 0) + math.ceil(math.prod(shape) * bits_each / 8)
    return parts | ({"d2t": 8 * config.draft_vocab} if config.draft_vocab < config.vocab else {})


def to_hf(config: DSparkConfig, target: TargetShape) -> dict[str, Any]:
    """The form of config.json, in LiquidAI's packaging."""
    temperatures = list(config.confidence_temperatures)
    return {
        "architectures": [target.drafter],
        "model_type": "qwen3",
        "hidden_size": config.hidden,
        "intermediate_size": config.inner,
        "num_hidden_layers": config.layers,
        "layer_types": ["full_attention"] * config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope.theta,
        "rope_is_neox_style": not config.interleaved,
        "qk_norm_order": config.qk_norm.value,
        "max_position_embeddings": config.context,
        "vocab_size": config.vocab,
        "draft_vocab_size": config.draft_vocab,
        "block_size": config.block,
        "markov_rank": config.markov_rank,
        "markov_head_type": config.markov.value,
        "enable_confidence_head": config.confidence,
        "confidence_head_with_markov": config.confidence_with_markov,
        "dflash_config": {
            "mask_token_id": config.mask_token,
            "target_layer_ids": list(config.taps),
            "num_target_layers": target.layers,
        },
        "dtype": "bfloat16",
        "vocabulary_sha256": config.vocabulary_sha256,
    } | ({"confidence_temperatures": temperatures} if temperatures else {})


def _stored(params: Params, forms: Mapping[str, AffineForm | None]) -> Iterator[tuple[str, NDArray[Any]]]:
    for name, value in published(params):
        form = forms[name]
        low = value if name in CONFIDENCE.values() else value.astype(ml_dtypes.bfloat16)
        if form is None:
            yield name, low
            continue
        module = name.removesuffix(".weight")
        packed = quantize(low, form)
        yield f"{module}.weight", packed.words
        yield f"{module}.scales", packed.scales
        yield f"{module}.biases", packed.biases


def _quantization(forms: Mapping[str, AffineForm | None]) -> dict[str, Any]:
    """MLX's two equal entries: the common form, and each module that has another one."""
    used = [form for form in forms.values() if form is not None]
    if not used:
        return {}
    common = used[0]
    told: dict[str, Any] = {"group_size": common.group_size, "bits": common.bits, "mode": "affine"}
    for name, form in forms.items():
        if form is not None and form != common:
            told[name.removesuffix(".weight")] = {"group_size": form.group_size, "bits": form.bits}
    return {"quantization": told, "quantization_config": told}
