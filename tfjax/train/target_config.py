"""The shapes of a small LFM2-MoE, its config.json, and what its file weighs at several precisions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tfjax.models.blocks.rope import RopeConfig
from tfjax.train.lfm2_dense import Lfm2Shape, Routing
from tfjax.train.lfm2_names import EMBEDDING, EXPERT_TENSORS, FINAL_NORM, file_name
from tfjax.train.target_tokenizer import END, PAD, START, TURN_END

ARCHITECTURE, MODEL_TYPE = "Lfm2MoeForCausalLM", "lfm2_moe"
MLX_GROUP, SCALE_BITS = 64, 32
BITS = (8, 6, 4)


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """A small LFM2-MoE with tied embedding.

    Attributes:
        inner: width of the feed-forward of the first `dense_layers` layers.
        expert_inner: the same of each expert.
        attention: numbers of the layers that attend; the others convolve.
        picked: experts of a token.
        taps: tokens that the convolution sees.
        context: positions that config.json states.
    """

    vocab: int
    hidden: int
    inner: int
    expert_inner: int
    layers: int
    attention: tuple[int, ...]
    dense_layers: int
    heads: int
    kv_heads: int
    experts: int
    picked: int
    taps: int
    context: int
    rope_theta: float
    norm_eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def shape(self) -> Lfm2Shape:
        return Lfm2Shape(
            self.heads, self.kv_heads, self.head_dim, self.norm_eps, RopeConfig(self.rope_theta), Routing(self.picked)
        )

    def layer_tensors(self, layer: int) -> dict[str, tuple[int, ...]]:
        """A layer's weights: name and shape; those of experts are stacked."""
        hidden, head = self.hidden, self.head_dim
        found: dict[str, tuple[int, ...]] = {"operator_norm": (hidden,), "ffn_norm": (hidden,)}
        if layer in self.attention:
            kv = (self.kv_heads * head, hidden)
            found |= {"q": (hidden, hidden), "k": kv, "v": kv, "out": (hidden, hidden)}
            found |= {"q_norm": (head,), "k_norm": (head,)}
        else:
            found |= {"conv_in": (3 * hidden, hidden), "conv": (hidden, self.taps), "conv_out": (hidden, hidden)}
        if layer < self.dense_layers:
            up = (self.inner, hidden)
            return found | {"w1": up, "w3": up, "w2": (hidden, self.inner)}
        found |= {"gate": (self.experts, hidden), "expert_bias": (self.experts,)}
        stacked = (self.experts, self.expert_inner, hidden)
        return found | {"w1": stacked, "w3": stacked, "w2": (self.experts, hidden, self.expert_inner)}

    @property
    def parameters(self) -> int:
        return sum(map(math.prod, self.file_tensors().values()))

    def stored_bytes(self, bits: int, expert_bits: int | None = None) -> int:
        """Bytes of the tensors in MLX's affine form, groups of 64; norms, routers and convolutions keep 16 bits."""
        total_bits = 16 * self.parameters
        for size, expert in self._matrices():
            code_bits = expert_bits if expert and expert_bits else bits
            total_bits += size * code_bits + size * SCALE_BITS // MLX_GROUP - 16 * size
        return total_bits // 8

    def _matrices(self) -> Iterator[tuple[int, bool]]:
        """Size of each matrix that is quantized, and whether it is of experts."""
        yield self.vocab * self.hidden, False
        for layer in range(self.layers):
            for name, shape in self.layer_tensors(layer).items():
                if name not in ("gate", "conv") and len(shape) > 1:
                    yield math.prod(shape), len(shape) == 3

    def file_tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor in model.safetensors."""
        found: dict[str, tuple[int, ...]] = {EMBEDDING: (self.vocab, self.hidden), FINAL_NORM: (self.hidden,)}
        for layer in range(self.layers):
            for name, shape in self.layer_tensors(layer).items():
                if len(shape) == 3:
                    paths = (EXPERT_TENSORS[name].format(expert) for expert in range(shape[0]))
                    found |= {f"model.layers.{layer}.{path}": shape[1:] for path in paths}
                else:
                    found[file_name(layer, name)] = (shape[0], 1, shape[1]) if name == "conv" else shape
        return found

    def to_hf(self) -> dict[str, Any]:
        """The form of config.json."""
        return {
            "architectures": [ARCHITECTURE],
            "model_type": MODEL_TYPE,
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "moe_intermediate_size": self.expert_inner,
            "num_hidden_layers": self.layers,
            "num_dense_layers": self.dense_layers,
            "layer_types": ["full_attention" if i in self.attention else "conv" for i in range(self.layers)],
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "num_experts": self.experts,
            "num_experts_per_tok": self.picked,
            "use_expert_bias": True,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.0,
            "conv_L_cache": self.taps,
            "conv_bias": False,
            "norm_eps": self.norm_eps,
            "rope_theta": self.rope_theta,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "max_position_embeddings": self.context,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "pad_token_id": PAD,
            "bos_token_id": START,
            "eos_token_id": TURN_END,
        }

    def generation_hf(self) -> dict[str, Any]:
        """The form of generation_config.json: a file of code ends with the text, a reply with its turn."""
        return {"bos_token_id": START, "eos_token_id": [TURN_END, END], "pad_token_id": PAD}
