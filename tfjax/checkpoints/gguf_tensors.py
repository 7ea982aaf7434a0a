"""Tensors of a `llama` GGUF under their Hugging Face names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints.checkpoint import TensorInfo
from tfjax.checkpoints.errors import CheckpointError
from tfjax.checkpoints.gguf_index import GgufFile, GgufTensor

ROPE_DIVISORS = "rope_freqs.weight"
SUPPORTED_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K")
_PLAIN = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16)}

_OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def hf_name(name: str) -> str | None:
    """The Hugging Face name of a GGUF tensor; None when it is no weight of a Llama model."""
    block = _BLOCK.fullmatch(name)
    if block is None:
        return _OUTER.get(name)
    layer, part, kind = block.groups()
    inner = _INNER.get(part)
    return f"model.layers.{int(layer)}.{inner}.{kind}" if inner else None


def table(file: GgufFile) -> dict[str, GgufTensor]:
    """The tensors by Hugging Face name.

    Raises:
        CheckpointError: a tensor is unknown or has a type that is not supported.
    """
    tensors = {}
    for tensor in file.index.tensors:
        _check_type(file.path, tensor)
        if tensor.name == ROPE_DIVISORS:
            continue
        name = hf_name(tensor.name)
        if name is None:
            raise CheckpointError(file.path, "unknown tensor", tensor=tensor.name, expected="a tensor of a Llama model")
        tensors[name] = tensor
    return tensors


def rope_divisors(file: GgufFile) -> NDArray[np.float32] | None:
    """What each RoPE inverse frequency is divided by, [head_dim / 2]; None when the file does not scale them so."""
    for tensor in file.index.tensors:
        if tensor.name == ROPE_DIVISORS:
            return _read(file.path, tensor).astype(np.float32).ravel()
    return None


class GgufTensors:
    """TensorSource over a GGUF file: dequantized, with the rows of Q and K in Hugging Face order."""

    def __init__(self, file: GgufFile, tensors: Mapping[str, GgufTensor], config: Mapping[str, Any]) -> None:
        self._path = file.path
        self._tensors = tensors
        self._heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
        self._infos = {
            name: TensorInfo(tensor.shape, tensor.type, file.path, tensor.stored_bytes)
            for name, tensor in tensors.items()
        }

    @property
    def infos(self) -> Mapping[str, TensorInfo]:
        return self._infos

    def read(self, name: str) -> NDArray[Any]:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise CheckpointError(self._path, "tensor is missing", tensor=name)
        values = _read(self._path, tensor)
        heads = self._heads.get(name.split(".")[-2])
        if heads is None:
            return values
        if values.shape[0] % (2 * heads):
            raise CheckpointError(
                self._path,
                "wrong shape",
                tensor=name,
                found=f"{values.shape[0]} rows",
                expected=f"a multiple of {2 * heads} ({heads} heads)",
            )
        return half_split_rows(values, heads)


def half_split_rows(values: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows in the order of rotate-half RoPE, from GGUF's order of interleaved pairs. [heads * H, ...] -> the same."""
    pairs = values.shape[0] // heads // 2
    return values.reshape(heads, pairs, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def _check_type(path: Path, tensor: GgufTensor) -> None:
    if tensor.type not in SUPPORTED_TYPES:
        raise CheckpointError(
            path,
            "quantization type is not supported",
            tensor=tensor.name,
            found=tensor.type,
            expected=", ".join(SUPPORTED_TYPES),
            remedy="Use a file of one of these types, such as Q8_0, Q4_1 or Q4_K_M.",
        )


def _read(path: Path, tensor: GgufTensor) -> NDArray[Any]:
    try:
        stored = np.memmap(path, np.uint8, "r", tensor.offset, (tensor.stored_bytes,)).view(np.ndarray)
    except (OSError, ValueError) as error:
        raise CheckpointError(path, "cannot be read", tensor=tensor.name, found=error) from error
    plain = _PLAIN.get(tensor.type)
    if plain is not None:
        values: NDArray[Any] = stored.view(plain).reshape(tensor.shape)
        return values
    return _dequantize(stored, tensor)


def _dequantize(stored: NDArray[np.uint8], tensor: GgufTensor) -> NDArray[np.float32]:
    from gguf import GGMLQuantizationType, quants

    kind = GGMLQuantizationType[tensor.type]
    rows = stored.reshape(quants.quant_shape_to_byte_shape(tensor.shape, kind))
    return quants.dequantize(rows, kind)
