"""GGUF tensor names and the Hugging Face names that they stand for, by architecture.

Source: the gguf package's table of tensor names, and what llama.cpp's converters do with the tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tfjax.checkpoints.gguf_index import GgufTensor

ROPE_DIVISORS = "rope_freqs.weight"

_OUTER: Mapping[str, Mapping[str, str]] = {
    "llama": {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    },
    # The final norm was first written under the name of the embedding's.
    "lfm2": {
        "token_embd.weight": "model.embed_tokens.weight",
        "token_embd_norm.weight": "model.embedding_norm.weight",
        "output_norm.weight": "model.embedding_norm.weight",
        "output.weight": "lm_head.weight",
    },
}
_INNER: Mapping[str, Mapping[str, str]] = {
    "llama": {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    },
    "lfm2": {
        "attn_norm": "operator_norm",
        "ffn_norm": "ffn_norm",
        "shortconv.conv": "conv.conv",
        "shortconv.in_proj": "conv.in_proj",
        "shortconv.out_proj": "conv.out_proj",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.out_proj",
        "attn_q_norm": "self_attn.q_layernorm",
        "attn_k_norm": "self_attn.k_layernorm",
        "ffn_gate": "feed_forward.w1",
        "ffn_up": "feed_forward.w3",
        "ffn_down": "feed_forward.w2",
        "ffn_gate_inp": "feed_forward.gate",
    },
}
_STACKED: Mapping[str, str] = {"ffn_gate_exps": "w1", "ffn_up_exps": "w3", "ffn_down_exps": "w2"}
_BLOCK = re.compile(r"blk\.(\d+)\.([\w.]+)\.(weight|bias)")
_FAMILY = {"llama": "llama", "lfm2": "lfm2", "lfm2moe": "lfm2"}


@dataclass(frozen=True, slots=True)
class GgufPiece:
    """A Hugging Face tensor in a GGUF file.

    Attributes:
        tensor: that holds it.
        shape: as it is read.
        place: index on the first axis; None for the whole tensor.
    """

    tensor: GgufTensor
    shape: tuple[int, ...]
    place: int | None = None


def hf_name(name: str, architecture: str = "llama") -> str | None:
    """The Hugging Face name of a GGUF tensor; None when it is no weight of this architecture, or a stack of several."""
    family = _FAMILY[architecture]
    block = _BLOCK.fullmatch(name)
    if block is None:
        return _OUTER[family].get(name)
    layer, part, kind = block.groups()
    if architecture == "lfm2moe" and (part, kind) == ("exp_probs_b", "bias"):
        return f"model.layers.{int(layer)}.feed_forward.expert_bias"
    inner = _INNER[family].get(part)
    return f"model.layers.{int(layer)}.{inner}.{kind}" if inner else None


def hf_pieces(tensor: GgufTensor, architecture: str) -> Iterator[tuple[str, GgufPiece]]:
    """Hugging Face names and pieces of a tensor; none when it is no weight of this architecture."""
    block = _BLOCK.fullmatch(tensor.name)
    matrix = _STACKED.get(block[2]) if block is not None and architecture == "lfm2moe" else None
    if block is not None and matrix is not None and len(tensor.shape) == 3 and block[3] == "weight":
        experts, *shape = tensor.shape
        for place in range(experts):
            name = f"model.layers.{int(block[1])}.feed_forward.experts.{place}.{matrix}.weight"
            yield name, GgufPiece(tensor, tuple(shape), place)
    elif (published := hf_name(tensor.name, architecture)) is not None:
        yield published, GgufPiece(tensor, _published_shape(published, tensor.shape))


def _published_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A convolution [H, taps] is published as [H, 1, taps]."""
    return (shape[0], 1, shape[1]) if name.endswith(".conv.conv.weight") and len(shape) == 2 else shape
