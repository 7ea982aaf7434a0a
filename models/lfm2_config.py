"""What decides an LFM2's shapes and numbers, dense or with experts, read from config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfjax.kernels.short_conv import MOST_TAPS
from tfjax.models.blocks.attention import AttentionConfig
from tfjax.models.blocks.experts import ExpertsConfig
from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.models.blocks.rope import RopeConfig
from tfjax.models.config import ConfigError, flag, require_number, require_size

DEFAULT_THETA = 1_000_000.0

NOISE = frozenset(
    """block_dim block_norm_eps block_use_swiglu block_use_xavier_init block_mlp_init_scale block_out_init_scale
    conv_dim conv_dim_out conv_use_xavier_init num_heads use_pos_enc""".split()  # noqa: SIM905
)
"""Keys of published configs that say nothing about the numbers of a forward."""

KNOWN_KEYS = NOISE | frozenset(
    """vocab_size hidden_size num_hidden_layers num_attention_heads num_key_value_heads norm_eps conv_L_cache conv_bias
    layer_types full_attn_idxs tie_word_embeddings tie_embedding rope_parameters rope_theta theta""".split()  # noqa: SIM905
)

_KINDS = {"full_attention": True, "conv": False}


@dataclass(frozen=True, slots=True)
class Lfm2Config:
    """Shapes and numbers of an LFM2.

    Attributes:
        inner: width of the dense feed-forward blocks, as it is stored.
        attends: for each layer, whether it attends; the others are short convolutions.
        taps: positions that a convolution sums over.
        dense_layers: leading layers whose feed-forward block has no experts.
        experts: of the other layers; None where all are dense.
        inner_note: where `inner` comes from, for messages about weights of another width.
    """

    vocab: int
    hidden: int
    inner: int
    attends: tuple[bool, ...]
    heads: int
    kv_heads: int
    norm_eps: float
    rope: RopeConfig
    taps: int
    conv_bias: bool
    context: int
    tied: bool
    dense_layers: int
    experts: ExpertsConfig | None = None
    inner_note: str = ""

    @property
    def layers(self) -> int:
        return len(self.attends)

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def attention(self) -> AttentionConfig:
        return AttentionConfig(
            self.hidden,
            self.heads,
            self.kv_heads,
            self.head_dim,
            qkv_bias=False,
            out_bias=False,
            qk_norm=QKNorm.BEFORE_ROPE,
            norm_eps=self.norm_eps,
        )


def read_config(
    config: Mapping[str, Any],
    inner: int,
    *,
    dense_layers: int | None = None,
    experts: ExpertsConfig | None = None,
    inner_note: str = "",
) -> Lfm2Config:
    """What dense models and those with experts say alike. All layers are dense where `dense_layers` is None.

    Raises:
        ConfigError: naming the key that is missing, inconsistent or not supported.
    """
    attends = read_layers(config)
    hidden, heads = require_size(config, "hidden_size"), require_size(config, "num_attention_heads")
    kv_heads = require_size(config, "num_key_value_heads")
    if hidden % (2 * heads):
        raise ConfigError(
            f"config.json: hidden_size {hidden} is no multiple of twice num_attention_heads {heads}; "
            "heads of an even width are expected"
        )
    if heads % kv_heads:
        raise ConfigError(f"config.json: num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}")
    return Lfm2Config(
        vocab=require_size(config, "vocab_size"),
        hidden=hidden,
        inner=inner,
        attends=attends,
        heads=heads,
        kv_heads=kv_heads,
        norm_eps=require_number(config, "norm_eps"),
        rope=_read_rope(config),
        taps=_read_taps(config),
        conv_bias=flag(config, "conv_bias"),
        context=require_size(config, "max_position_embeddings"),
        tied=_read_tied(config),
        dense_layers=len(attends) if dense_layers is None else min(dense_layers, len(attends)),
        experts=experts,
        inner_note=inner_note,
    )


def read_layers(config: Mapping[str, Any]) -> tuple[bool, ...]:
    """Which layers attend: by `layer_types`, or by the indices of `full_attn_idxs`, or all.

    Raises:
        ConfigError: another number of types than layers, an unknown type, or an index that is no layer's.
    """
    count = require_size(config, "num_hidden_layers")
    types = config.get("layer_types")
    if types is not None:
        if not isinstance(types, list) or len(types) != count:
            found = f"has {len(types)} entries" if isinstance(types, list) else f"is {types!r}"
            raise ConfigError(f"config.json: layer_types {found}; num_hidden_layers {count} entries are expected")
        for index, kind in enumerate(types):
            if kind not in _KINDS:
                raise ConfigError(
                    f"config.json: layer_types[{index}] is {kind!r}; supported are {', '.join(map(repr, _KINDS))}"
                )
        return tuple(_KINDS[kind] for kind in types)
    indices = config.get("full_attn_idxs")
    if indices is None:
        return (True,) * count
    if not isinstance(indices, list):
        raise ConfigError(f"config.json: full_attn_idxs is {indices!r}; a list of layer indices is expected")
    for index in indices:
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < count:
            raise ConfigError(
                f"config.json: full_attn_idxs holds {index!r}; with num_hidden_layers {count} "
                f"indices from 0 to {count - 1} are expected"
            )
    return tuple(index in indices for index in range(count))


def stored_width(config: Mapping[str, Any]) -> tuple[int, str]:
    """Width of a dense model's feed-forward blocks as stored, and where it comes from.

    `block_ff_dim` is an older name of `intermediate_size` and wins. Where `block_auto_adjust_ff_dim` is set (as by
    default), two thirds of it are stored, times `block_ffn_dim_multiplier` and rounded up to whole `block_multiple_of`.
    """
    key = "intermediate_size" if config.get("block_ff_dim") is None else "block_ff_dim"
    named = require_size(config, key)
    if config.get("block_auto_adjust_ff_dim") is not None and not flag(config, "block_auto_adjust_ff_dim"):
        return named, f"{key} {named} with block_auto_adjust_ff_dim false"
    width = int(2 * named / 3)
    if config.get("block_ffn_dim_multiplier", 1.0) is not None:
        multiple = require_size(config, "block_multiple_of", default=256)
        width = int(require_number(config, "block_ffn_dim_multiplier", default=1.0) * width)
        width = multiple * math.ceil(width / multiple)
    return width, (
        f"{key} {named} adjusted to {width} because block_auto_adjust_ff_dim is not false; weights of width {named} "
        "need it false"
    )


def _read_rope(config: Mapping[str, Any]) -> RopeConfig:
    """`theta` is an older name of `rope_theta`."""
    older = config.get("theta")
    renamed = config if older is None else {"rope_theta": older, **config}
    return RopeConfig.from_hf(renamed, default_theta=DEFAULT_THETA)


def _read_taps(config: Mapping[str, Any]) -> int:
    taps = require_size(config, "conv_L_cache")
    if taps > MOST_TAPS:
        raise ConfigError(
            f"config.json: conv_L_cache is {taps}; at most {MOST_TAPS} is supported, the positions of a cache page"
        )
    return taps


def _read_tied(config: Mapping[str, Any]) -> bool:
    """Tied where nothing is said. The older key wins, as in transformers."""
    for key in ("tie_embedding", "tie_word_embeddings"):
        if config.get(key) is not None:
            return flag(config, key)
    return True
