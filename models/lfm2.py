"""LFM2: short convolutions and attention mixed, each followed by a gated feed-forward block."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from tfjax.kernels.matmul import rows_matmul
from tfjax.kernels.packed import Weight
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.short_conv import RING
from tfjax.models.blocks.attention import Attention
from tfjax.models.blocks.experts import ExpertsMLP
from tfjax.models.blocks.mlp import GatedMLP
from tfjax.models.blocks.norm import RMSNorm
from tfjax.models.blocks.short_conv import ShortConv
from tfjax.models.config import reject_unknown
from tfjax.models.family import Family, Source
from tfjax.models.lfm2_config import KNOWN_KEYS, Lfm2Config, read_config, stored_width
from tfjax.models.rows import ConvCache, Forward, LayerCache, Rows, tapped

DENSE_KEYS = KNOWN_KEYS | frozenset(
    """intermediate_size block_ff_dim block_auto_adjust_ff_dim block_ffn_dim_multiplier
    block_multiple_of""".split()  # noqa: SIM905
)

type Cache = tuple[LayerCache | ConvCache, ...]
type Parts = dict[str, tuple[Source, ...]]


def config_from_hf(config: Mapping[str, Any]) -> Lfm2Config:
    """Read a Hugging Face config.json of a dense LFM2.

    Raises:
        ConfigError: naming the key that is missing, inconsistent or not supported.
    """
    reject_unknown(config, DENSE_KEYS)
    inner, note = stored_width(config)
    return read_config(config, inner, inner_note=note)


class Lfm2Layer(nnx.Module):
    """x + operator(norm x), then x + feed_forward(norm x)."""

    def __init__(self, config: Lfm2Config, index: int, dtype: jnp.dtype):
        c = config
        self.operator_norm = RMSNorm(c.hidden, c.norm_eps, dtype)
        self.operator = (
            Attention(c.attention, dtype)
            if c.attends[index]
            else ShortConv(c.hidden, c.taps, bias=c.conv_bias, dtype=dtype)
        )
        self.ffn_norm = RMSNorm(c.hidden, c.norm_eps, dtype)
        self.feed_forward = (
            GatedMLP(c.hidden, c.inner, bias=False, dtype=dtype)
            if c.experts is None or index < c.dense_layers
            else ExpertsMLP(c.hidden, c.experts, dtype)
        )

    def __call__(
        self, x: jax.Array, cache: Any, rows: Rows, inverse_frequency: jax.Array, *, tile_rows: int
    ) -> tuple[jax.Array, Any]:
        normed = self.operator_norm(x)
        if isinstance(self.operator, ShortConv):
            mixed, cache = self.operator(normed, cache, rows)
        else:
            mixed, cache = self.operator(normed, cache, rows, inverse_frequency, tile_rows=tile_rows)
        x = x + mixed
        return x + self.feed_forward(self.ffn_norm(x)), cache


@functools.partial(jax.jit, static_argnames=("definition", "tile_rows"))
def _layer(
    definition: Any, state: Any, x: jax.Array, cache: Any, rows: Rows, frequency: jax.Array, tile_rows: int
) -> tuple[jax.Array, Any]:
    # Equal layers share one trace through this inner jit; XLA inlines it again.
    layer: Lfm2Layer = nnx.merge(definition, state)
    return layer(x, cache, rows, frequency, tile_rows=tile_rows)


class Lfm2(nnx.Module):
    """The whole model, dense or with experts. Parameters only; the cache goes in and comes out."""

    def __init__(self, config: Lfm2Config, dtype: jnp.dtype):
        self.config = config
        self.embedding = nnx.Param(jnp.zeros((config.vocab, config.hidden), dtype))
        self.layers = nnx.List([Lfm2Layer(config, index, dtype) for index in range(config.layers)])
        self.norm = RMSNorm(config.hidden, config.norm_eps, dtype)
        self.head = None if config.tied else nnx.Param(jnp.zeros((config.vocab, config.hidden), dtype))

    def __call__(self, cache: Cache, rows: Rows, *, tile_rows: int, taps: tuple[int, ...] = ()) -> Forward:
        """One forward of the rows. `taps` are layers whose features are wanted."""
        frequency = jnp.asarray(self.config.rope.inverse_frequency(self.config.head_dim))
        x = self.embedding[...][rows.token]
        written, after = [], []
        for layer, layer_cache in zip(self.layers, cache, strict=True):
            x, new_cache = _layer(*nnx.split(layer), x, layer_cache, rows, frequency, tile_rows)
            written.append(new_cache)
            after.append(x)
        return Forward(self.norm(x), tuple(written), tapped(after, taps))

    @property
    def head_weight(self) -> Weight:
        """Shape: [V, D]."""
        return self.embedding[...] if self.head is None else self.head[...]

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Shapes: [R, D] -> float32 [R, V]."""
        return rows_matmul(hidden, self.head_weight)


def empty_cache(config: Lfm2Config, pages: int, page_rows: int, lanes: int, dtype: jnp.dtype) -> Cache:
    """A zeroed cache of `pages` pages and `lanes` lanes, page 0 and the last lane being scratch."""
    keys = (pages, config.kv_heads, page_rows, config.head_dim)
    ring, tails = (lanes, RING, config.hidden), (pages, config.taps - 1, config.hidden)

    def zeros(shape: tuple[int, ...]) -> jax.Array:
        return jnp.zeros(shape, dtype)

    return tuple(
        LayerCache(zeros(keys), zeros(keys)) if attends else ConvCache(zeros(ring), zeros(tails))
        for attends in config.attends
    )


def cache_bytes_per_position(config: Lfm2Config, dtype: jnp.dtype) -> int:
    """Bytes of keys, values and page tails that one position takes over all layers, rounded up."""
    attending = sum(config.attends)
    keys_values = 2 * attending * config.kv_heads * config.head_dim
    tails = (config.layers - attending) * (config.taps - 1) * config.hidden
    return (keys_values + -(-tails // PAGE_ROWS)) * np.dtype(dtype).itemsize


def cache_bytes_per_lane(config: Lfm2Config, dtype: jnp.dtype) -> int:
    """Bytes of a lane's rings over all convolutions."""
    return (config.layers - sum(config.attends)) * RING * config.hidden * np.dtype(dtype).itemsize


def sources(config: Lfm2Config) -> Parts:
    """Which checkpoint tensors make each parameter (several are laid end to end along the first axis)."""
    c = config
    found: Parts = {
        "embedding": (Source("model.embed_tokens.weight", (c.vocab, c.hidden)),),
        "norm.weight": (Source("model.embedding_norm.weight", (c.hidden,)),),
    }
    if not c.tied:
        found["head"] = (Source("lm_head.weight", (c.vocab, c.hidden)),)
    for index, attends in enumerate(c.attends):
        name = f"model.layers.{index}"
        parts = _attention_sources(c, name) if attends else _conv_sources(c, name)
        has_experts = c.experts is not None and index >= c.dense_layers
        parts |= _experts_sources(c, name) if has_experts else _dense_sources(c, name)
        for norm in ("operator_norm", "ffn_norm"):
            parts[f"{norm}.weight"] = (Source(f"{name}.{norm}.weight", (c.hidden,)),)
        found |= {f"layers.{index}.{parameter}": tensors for parameter, tensors in parts.items()}
    return found


def _attention_sources(c: Lfm2Config, layer: str) -> Parts:
    name, width, kv_width = f"{layer}.self_attn", c.heads * c.head_dim, c.kv_heads * c.head_dim
    qkv = (("q_proj", width), ("k_proj", kv_width), ("v_proj", kv_width))
    return {
        "operator.qkv.weight": tuple(Source(f"{name}.{part}.weight", (size, c.hidden)) for part, size in qkv),
        "operator.q_norm.weight": (Source(f"{name}.q_layernorm.weight", (c.head_dim,)),),
        "operator.k_norm.weight": (Source(f"{name}.k_layernorm.weight", (c.head_dim,)),),
        "operator.out.weight": (Source(f"{name}.out_proj.weight", (c.hidden, width)),),
    }


def _conv_sources(c: Lfm2Config, layer: str) -> Parts:
    name = f"{layer}.conv"
    parts: Parts = {
        "operator.bcx.weight": (Source(f"{name}.in_proj.weight", (3 * c.hidden, c.hidden)),),
        "operator.taps": (Source(f"{name}.conv.weight", (c.hidden, 1, c.taps)),),
        "operator.out.weight": (Source(f"{name}.out_proj.weight", (c.hidden, c.hidden)),),
    }
    if c.conv_bias:
        parts["operator.bcx.bias"] = (Source(f"{name}.in_proj.bias", (3 * c.hidden,)),)
        parts["operator.bias"] = (Source(f"{name}.conv.bias", (c.hidden,)),)
        parts["operator.out.bias"] = (Source(f"{name}.out_proj.bias", (c.hidden,)),)
    return parts


def _dense_sources(c: Lfm2Config, layer: str) -> Parts:
    name = f"{layer}.feed_forward"
    return {
        "feed_forward.gate_up.weight": tuple(
            Source(f"{name}.{part}.weight", (c.inner, c.hidden), c.inner_note) for part in ("w1", "w3")
        ),
        "feed_forward.down.weight": (Source(f"{name}.w2.weight", (c.hidden, c.inner), c.inner_note),),
    }


def _experts_sources(c: Lfm2Config, layer: str) -> Parts:
    """Of each expert its gate, then its up matrix; the experts in turn."""
    assert c.experts is not None
    name, e = f"{layer}.feed_forward", c.experts
    parts: Parts = {
        "feed_forward.router.weight": (Source(f"{name}.gate.weight", (e.count, c.hidden)),),
        "feed_forward.gate_up": tuple(
            Source(f"{name}.experts.{i}.{part}.weight", (e.inner, c.hidden))
            for i in range(e.count)
            for part in ("w1", "w3")
        ),
        "feed_forward.down": tuple(
            Source(f"{name}.experts.{i}.w2.weight", (c.hidden, e.inner)) for i in range(e.count)
        ),
    }
    if e.biased:
        parts["feed_forward.router.bias"] = (Source(f"{name}.expert_bias", (e.count,)),)
    return parts


FAMILY: Family[Lfm2Config] = Family(
    architecture="Lfm2ForCausalLM",
    config_from_hf=config_from_hf,
    build=Lfm2,
    sources=sources,
    empty_cache=empty_cache,
    cache_bytes_per_position=cache_bytes_per_position,
    cache_bytes_per_lane=cache_bytes_per_lane,
    stacked_module="tfjax.models.stacked_lfm2",
)
