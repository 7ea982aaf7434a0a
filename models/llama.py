"""Llama and the checkpoints that share its architecture (SmolLM2 and others)."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from tfjax.kernels.matmul import rows_matmul
from tfjax.kernels.packed import Weight
from tfjax.models.blocks.attention import Attention, AttentionConfig
from tfjax.models.blocks.mlp import GatedMLP
from tfjax.models.blocks.norm import RMSNorm
from tfjax.models.blocks.rope import RopeConfig
from tfjax.models.config import ConfigError, flag, reject_unknown, require_number, require_size
from tfjax.models.family import Family, Source
from tfjax.models.rows import Forward, LayerCache, Rows, tapped

KNOWN_KEYS = frozenset(
    """vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim
    rms_norm_eps rope_theta rope_scaling rope_parameters tie_word_embeddings attention_bias mlp_bias hidden_act
    max_position_embeddings rope_interleaved""".split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Everything that decides a Llama's shapes and numbers.

    Attributes:
        context: positions that the model was trained for.
        attention_bias: biases on q, k, v and the output projection.
        tied: the head is the embedding.
    """

    vocab: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope: RopeConfig
    context: int
    tied: bool
    attention_bias: bool
    mlp_bias: bool

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> LlamaConfig:
        """Read a Hugging Face config.json.

        Raises:
            ConfigError: naming the key that is missing, inconsistent or not supported.
        """
        reject_unknown(config, KNOWN_KEYS)
        activation = config.get("hidden_act", "silu")
        if activation != "silu":
            raise ConfigError(f"config.json: hidden_act is {activation!r}; only 'silu' is supported for Llama")
        if flag(config, "rope_interleaved"):
            raise ConfigError("config.json: rope_interleaved is True; only half-split RoPE is supported for Llama")
        hidden, heads = require_size(config, "hidden_size"), require_size(config, "num_attention_heads")
        kv_heads = require_size(config, "num_key_value_heads", default=heads)
        if heads % kv_heads:
            raise ConfigError(
                f"config.json: num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}"
            )
        return cls(
            vocab=require_size(config, "vocab_size"),
            hidden=hidden,
            inner=require_size(config, "intermediate_size"),
            layers=require_size(config, "num_hidden_layers"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=_head_dim(config, hidden, heads),
            norm_eps=require_number(config, "rms_norm_eps"),
            rope=RopeConfig.from_hf(config),
            context=require_size(config, "max_position_embeddings"),
            tied=flag(config, "tie_word_embeddings"),
            attention_bias=flag(config, "attention_bias"),
            mlp_bias=flag(config, "mlp_bias"),
        )

    @property
    def attention(self) -> AttentionConfig:
        return AttentionConfig(
            self.hidden, self.heads, self.kv_heads, self.head_dim, self.attention_bias, self.attention_bias
        )


def _head_dim(config: Mapping[str, Any], hidden: int, heads: int) -> int:
    if config.get("head_dim") is None and hidden % heads:
        raise ConfigError(
            f"config.json: hidden_size {hidden} is no multiple of num_attention_heads {heads}, and there is no head_dim"
        )
    head_dim = require_size(config, "head_dim", default=hidden // heads)
    if head_dim % 2:
        raise ConfigError(f"config.json: head_dim is {head_dim}; rotation needs an even one")
    return head_dim


class LlamaLayer(nnx.Module):
    """x + attention(norm x), then x + mlp(norm x)."""

    def __init__(self, config: LlamaConfig, dtype: jnp.dtype):
        self.attention_norm = RMSNorm(config.hidden, config.norm_eps, dtype)
        self.attention = Attention(config.attention, dtype)
        self.mlp_norm = RMSNorm(config.hidden, config.norm_eps, dtype)
        self.mlp = GatedMLP(config.hidden, config.inner, bias=config.mlp_bias, dtype=dtype)

    def __call__(
        self, x: jax.Array, cache: LayerCache, rows: Rows, inverse_frequency: jax.Array, *, tile_rows: int
    ) -> tuple[jax.Array, LayerCache]:
        mixed, cache = self.attention(self.attention_norm(x), cache, rows, inverse_frequency, tile_rows=tile_rows)
        x = x + mixed
        return x + self.mlp(self.mlp_norm(x)), cache


@functools.partial(jax.jit, static_argnames=("definition", "tile_rows"))
def _layer(
    definition: Any, state: Any, x: jax.Array, cache: LayerCache, rows: Rows, frequency: jax.Array, tile_rows: int
) -> tuple[jax.Array, LayerCache]:
    # Equal layers share one trace through this inner jit; XLA inlines it again.
    layer: LlamaLayer = nnx.merge(definition, state)
    return layer(x, cache, rows, frequency, tile_rows=tile_rows)


def run_layers(
    config: LlamaConfig,
    layers: Iterable[LlamaLayer],
    x: jax.Array,
    cache: tuple[LayerCache, ...],
    rows: Rows,
    *,
    tile_rows: int,
    taps: tuple[int, ...] = (),
) -> Forward:
    """All layers in order, without the final norm. Shapes: x [R, D]."""
    frequency = jnp.asarray(config.rope.inverse_frequency(config.head_dim))
    written, after = [], []
    for layer, layer_cache in zip(layers, cache, strict=True):
        x, new_cache = _layer(*nnx.split(layer), x, layer_cache, rows, frequency, tile_rows)
        written.append(new_cache)
        after.append(x)
    return Forward(x, tuple(written), tapped(after, taps))


class Llama(nnx.Module):
    """The whole model. Parameters only; the cache goes in and comes out."""

    def __init__(self, config: LlamaConfig, dtype: jnp.dtype):
        self.config = config
        self.embedding = nnx.Param(jnp.zeros((config.vocab, config.hidden), dtype))
        self.layers = nnx.List([LlamaLayer(config, dtype) for _ in range(config.layers)])
        self.norm = RMSNorm(config.hidden, config.norm_eps, dtype)
        self.head = None if config.tied else nnx.Param(jnp.zeros((config.vocab, config.hidden), dtype))

    def __call__(
        self, cache: tuple[LayerCache, ...], rows: Rows, *, tile_rows: int, taps: tuple[int, ...] = ()
    ) -> Forward:
        """One forward of the rows. `taps` are layers whose features are wanted."""
        x = self.embedding[...][rows.token]
        done = run_layers(self.config, self.layers, x, cache, rows, tile_rows=tile_rows, taps=taps)
        return done._replace(hidden=self.norm(done.hidden))

    @property
    def head_weight(self) -> Weight:
        """Shape: [V, D]."""
        return self.embedding[...] if self.head is None else self.head[...]

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Shapes: [R, D] -> float32 [R, V]."""
        return rows_matmul(hidden, self.head_weight)


def empty_cache(
    config: LlamaConfig, pages: int, page_rows: int, lanes: int, dtype: jnp.dtype
) -> tuple[LayerCache, ...]:
    """A zeroed cache of `pages` pages, page 0 being scratch. Lanes have nothing of their own."""
    shape = (pages, config.kv_heads, page_rows, config.head_dim)
    return tuple(LayerCache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)) for _ in range(config.layers))


def cache_bytes_per_position(config: LlamaConfig, dtype: jnp.dtype) -> int:
    """Bytes of keys and values that one position takes over all layers."""
    return 2 * config.layers * config.kv_heads * config.head_dim * np.dtype(dtype).itemsize


def cache_bytes_per_lane(config: LlamaConfig, dtype: jnp.dtype) -> int:
    """None: everything lies in pages."""
    return 0


def sources(config: LlamaConfig) -> dict[str, tuple[Source, ...]]:
    """Which checkpoint tensors make each parameter (several are laid end to end along the first axis)."""
    c, width, kv_width = config, config.heads * config.head_dim, config.kv_heads * config.head_dim
    found: dict[str, tuple[Source, ...]] = {}
    found["embedding"] = (Source("model.embed_tokens.weight", (c.vocab, c.hidden)),)
    found["norm.weight"] = (Source("model.norm.weight", (c.hidden,)),)
    if not c.tied:
        found["head"] = (Source("lm_head.weight", (c.vocab, c.hidden)),)
    for i in range(c.layers):
        at, name = f"layers.{i}", f"model.layers.{i}"
        found[f"{at}.attention_norm.weight"] = (Source(f"{name}.input_layernorm.weight", (c.hidden,)),)
        found[f"{at}.mlp_norm.weight"] = (Source(f"{name}.post_attention_layernorm.weight", (c.hidden,)),)
        attention, mlp = f"{name}.self_attn", f"{name}.mlp"
        qkv = ((f"{attention}.q_proj", width), (f"{attention}.k_proj", kv_width), (f"{attention}.v_proj", kv_width))
        gate_up = ((f"{mlp}.gate_proj", c.inner), (f"{mlp}.up_proj", c.inner))
        products = {
            f"{at}.attention.qkv": (qkv, c.hidden, c.attention_bias),
            f"{at}.attention.out": (((f"{attention}.o_proj", c.hidden),), width, c.attention_bias),
            f"{at}.mlp.gate_up": (gate_up, c.hidden, c.mlp_bias),
            f"{at}.mlp.down": (((f"{mlp}.down_proj", c.hidden),), c.inner, c.mlp_bias),
        }
        for parameter, (parts, size_in, bias) in products.items():
            found[f"{parameter}.weight"] = tuple(Source(f"{p}.weight", (out, size_in)) for p, out in parts)
            if bias:
                found[f"{parameter}.bias"] = tuple(Source(f"{p}.bias", (out,)) for p, out in parts)
    return found


FAMILY: Family[LlamaConfig] = Family(
    architecture="LlamaForCausalLM",
    config_from_hf=LlamaConfig.from_hf,
    build=Llama,
    sources=sources,
    empty_cache=empty_cache,
    cache_bytes_per_position=cache_bytes_per_position,
    cache_bytes_per_lane=cache_bytes_per_lane,
    stacked_module="tfjax.models.stacked_llama",
)
