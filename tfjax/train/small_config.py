"""The shapes of a small drafter, its config.json, and what its file weighs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfjax.models.blocks.rope import RopeConfig

ARCHITECTURE = "TfjaxSmallDrafter"
MODEL_TYPE = "tfjax_small_drafter"
MIB = 1 << 20
FILE_ITEM_BYTES, MAP_ITEM_BYTES = 2, 8  # bfloat16 weights, int64 d2t


@dataclass(frozen=True, slots=True)
class SmallConfig:
    """A Llama that reads the target's embedding through a projection.

    Attributes:
        vocab: tokens of the target.
        target_hidden: width of the target's embedding.
        draft_vocab: tokens that can be drafted; equal to `vocab` for all of them, with no d2t map then.
        projected_head: the head is the target's embedding rows through a second projection, so that its size does
            not grow with the draft vocabulary; otherwise the head is a matrix of its own.
        context: positions that config.json states.
        vocabulary_sha256: hash of the target's tokens, so that another target is refused.
    """

    vocab: int
    target_hidden: int
    draft_vocab: int
    projected_head: bool
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float
    context: int
    vocabulary_sha256: str

    @property
    def rope(self) -> RopeConfig:
        return RopeConfig(self.rope_theta)

    @property
    def reduced(self) -> bool:
        """Whether some tokens cannot be drafted."""
        return self.draft_vocab < self.vocab

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every weight in the file; d2t is not among them."""
        width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        found: dict[str, tuple[int, ...]] = {"embed_proj.weight": (self.hidden, self.target_hidden)}
        for i in range(self.layers):
            at = f"model.layers.{i}"
            found[f"{at}.input_layernorm.weight"] = (self.hidden,)
            found[f"{at}.self_attn.q_proj.weight"] = (width, self.hidden)
            found[f"{at}.self_attn.k_proj.weight"] = (kv_width, self.hidden)
            found[f"{at}.self_attn.v_proj.weight"] = (kv_width, self.hidden)
            found[f"{at}.self_attn.o_proj.weight"] = (self.hidden, width)
            found[f"{at}.post_attention_layernorm.weight"] = (self.hidden,)
            found[f"{at}.mlp.gate_proj.weight"] = (self.inner, self.hidden)
            found[f"{at}.mlp.up_proj.weight"] = (self.inner, self.hidden)
            found[f"{at}.mlp.down_proj.weight"] = (self.hidden, self.inner)
        found["model.norm.weight"] = (self.hidden,)
        if self.projected_head:
            found["head_proj.weight"] = (self.target_hidden, self.hidden)
        else:
            found["lm_head.weight"] = (self.draft_vocab, self.hidden)
        return found

    @property
    def parameters(self) -> int:
        return sum(math.prod(shape) for shape in self.tensors().values())

    @property
    def file_bytes(self) -> int:
        """Bytes of the tensors in model.safetensors; its header of a few kilobytes is not counted."""
        return self.parameters * FILE_ITEM_BYTES + (self.draft_vocab * MAP_ITEM_BYTES if self.reduced else 0)

    def to_hf(self) -> dict[str, Any]:
        """The form of config.json."""
        return {
            "architectures": [ARCHITECTURE],
            "model_type": MODEL_TYPE,
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": self.norm_eps,
            "rope_theta": self.rope_theta,
            "max_position_embeddings": self.context,
            "tie_word_embeddings": self.projected_head,
            "torch_dtype": "bfloat16",
            "vocab_size": self.vocab,
            "target_hidden_size": self.target_hidden,
            "draft_vocab_size": self.draft_vocab,
            "vocabulary_sha256": self.vocabulary_sha256,
        }


def check_size(config: SmallConfig, max_mib: float) -> None:
    """Refuse a drafter whose file would be too large.

    Raises:
        ValueError: with the sizes, what takes most of it, and what to lower.
    """
    size = config.file_bytes
    if size <= max_mib * MIB:
        return
    parts = _parts(config)
    largest = max(parts, key=lambda name: parts[name])
    listing = ", ".join(f"{name} {size / MIB:.2f}" for name, size in parts.items())
    raise ValueError(
        f"the drafter's file would have {size / MIB:.2f} MiB, more than --max-mib {max_mib:g} ({listing}); "
        f"{_REMEDY[largest]} or raise --max-mib"
    )


_REMEDY: Mapping[str, str] = {
    "layers": "lower --layers or --inner,",
    "head": "take --head projected, lower --draft-vocab,",
    "embed_proj": "lower --hidden,",
    "d2t": "lower --draft-vocab,",
}


def _parts(config: SmallConfig) -> dict[str, int]:
    parts = dict.fromkeys(("layers", "head", "embed_proj"), 0)
    for name, shape in config.tensors().items():
        part = "head" if "head" in name else "embed_proj" if name.startswith("embed") else "layers"
        parts[part] += math.prod(shape) * FILE_ITEM_BYTES
    return parts | ({"d2t": config.draft_vocab * MAP_ITEM_BYTES} if config.reduced else {})
