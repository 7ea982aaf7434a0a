"""What decides a DSpark drafter's shapes and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfjax.models.blocks.markov import MarkovKind
from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.models.blocks.rope import RopeConfig
from tfjax.models.config import ConfigError, require_number, require_size
from tfjax.models.dspark_packaging import unpack

THETAS = (1e3, 1e10)
"""Bounds of rope_theta. One that is stored elsewhere and read as a default ruins drafts without an error."""

MOST_DRAFTS, HIGHEST_RANK = 31, 4096
"""Bounds of the block size and of the Markov head's rank."""


@dataclass(frozen=True, slots=True)
class DSparkConfig:
    """Shapes and numbers of a DSpark drafter.

    Attributes:
        hidden: width of its residual stream.
        target_hidden: width of the target's, which each tapped layer's feature has.
        qk_norm: where query and key heads are normalised.
        interleaved: RoPE turns pairs (2i, 2i + 1), else (i, i + H/2).
        vocab: tokens of the target.
        draft_vocab: rows of the head; fewer than `vocab` where the vocabulary is reduced.
        block: most drafts of one forward.
        mask_token: what stands in a block where a draft is wanted.
        taps: the target's layers whose output it reads, in the order of their features.
        target_layers: layers of the target that it was trained for, None where the config does not tell.
        markov_rows: rows of the Markov head's first matrix: `vocab`, or `draft_vocab`.
        confidence: whether there is a confidence head.
        confidence_with_markov: whether that reads the token before too.
        confidence_temperatures: calibration of each place of the block; empty for none.
        anchor_first: the anchor's row makes the first draft; else the first mask's does.
        own_embedding: whether the checkpoint has an embedding; the target's is read otherwise.
        own_head: the same for the head.
        context: positions that it was trained for.
        vocabulary_sha256: hash of the tokens that it was trained with, None where the config does not tell.
    """

    hidden: int
    target_hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    norm_eps: float
    rope: RopeConfig
    qk_norm: QKNorm
    interleaved: bool
    vocab: int
    draft_vocab: int
    block: int
    mask_token: int
    taps: tuple[int, ...]
    target_layers: int | None
    markov: MarkovKind
    markov_rank: int
    markov_rows: int
    confidence: bool
    confidence_with_markov: bool
    confidence_temperatures: tuple[float, ...]
    anchor_first: bool
    own_embedding: bool
    own_head: bool
    context: int
    vocabulary_sha256: str | None = None

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> DSparkConfig:
        """Read a config.json of any published packaging; keys of the target's config that ride along are ignored.

        What only the tensors tell (own embedding and head, rows of the Markov head) is as in LiquidAI's drafters.

        Raises:
            ConfigError: naming the key, its value and what is expected.
        """
        packaged = unpack(config)
        body, fields = packaged.body, packaged.fields
        heads = require_size(body, "num_attention_heads")
        kv_heads = require_size(body, "num_key_value_heads", default=heads)
        if heads % kv_heads:
            raise ConfigError(f"config.json: num_attention_heads {heads} is no multiple of {kv_heads} key heads")
        hidden, vocab = require_size(body, "hidden_size"), require_size(body, "vocab_size")
        draft_vocab = _at_most(fields, "draft_vocab_size", vocab, default=vocab)
        block = _at_most(fields, "block_size", MOST_DRAFTS + (not packaged.anchor_first)) - (not packaged.anchor_first)
        if block < 1:
            raise ConfigError("config.json: block_size is 1, the anchor alone; it leaves no draft")
        return cls(
            hidden=hidden,
            target_hidden=require_size(fields, "target_hidden_size", default=hidden),
            layers=require_size(body, "num_hidden_layers"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=_head_dim(body, hidden, heads),
            inner=require_size(body, "intermediate_size"),
            norm_eps=require_number(body, "rms_norm_eps"),
            rope=_rope(body),
            qk_norm=_choice(QKNorm, fields, "qk_norm_order", QKNorm.BEFORE_ROPE),
            interleaved=packaged.interleaved,
            vocab=vocab,
            draft_vocab=draft_vocab,
            block=block,
            mask_token=_mask_token(fields, vocab),
            taps=packaged.taps,
            target_layers=_optional_size(fields, "num_target_layers"),
            markov=_choice(MarkovKind, fields, "markov_head_type", MarkovKind.VANILLA),
            markov_rank=_at_most(fields, "markov_rank", HIGHEST_RANK),
            markov_rows=vocab,
            confidence=_flag(fields, "enable_confidence_head", default=True),
            confidence_with_markov=_flag(fields, "confidence_head_with_markov", default=True),
            confidence_temperatures=_temperatures(fields, block),
            anchor_first=packaged.anchor_first,
            own_embedding=False,
            own_head=False,
            context=require_size(body, "max_position_embeddings"),
            vocabulary_sha256=fields.get("vocabulary_sha256"),
        )

    @property
    def first_slot(self) -> int:
        """The block's row that makes the first draft."""
        return 0 if self.anchor_first else 1


def _head_dim(body: Mapping[str, Any], hidden: int, heads: int) -> int:
    head_dim = require_size(body, "head_dim", default=max(1, hidden // heads))
    if head_dim % 2:
        raise ConfigError(f"config.json: head_dim is {head_dim}; rotation needs an even one")
    return head_dim


def _rope(body: Mapping[str, Any]) -> RopeConfig:
    """A theta must be stated, and once: drafts of a wrong one are bad, and nothing else shows it."""
    nested = {key: body[key] for key in ("rope_parameters", "rope_scaling") if isinstance(body.get(key), Mapping)}
    stated = {f"{key}.rope_theta": value["rope_theta"] for key, value in nested.items() if "rope_theta" in value}
    top = body.get("rope_theta")
    if top is None and not stated:
        raise ConfigError("config.json lacks rope_theta, at the top and in rope_parameters; a drafter must state it")
    for key, theta in stated.items():
        if top not in (None, theta):
            raise ConfigError(f"config.json: rope_theta is {top!r} and {key} is {theta!r}; keep the right one")
    cut = {key: {k: v for k, v in value.items() if k != "partial_rotary_factor"} for key, value in nested.items()}
    rope = RopeConfig.from_hf({**body, **cut})
    if not THETAS[0] <= rope.theta <= THETAS[1]:
        raise ConfigError(
            f"config.json: rope_theta is {rope.theta}; between {THETAS[0]:.0e} and {THETAS[1]:.0e} is expected"
        )
    return rope


def _at_most(fields: Mapping[str, Any], key: str, most: int, default: int | None = None) -> int:
    value = require_size(fields, key, default=default)
    if value > most:
        raise ConfigError(f"config.json: {key} is {value}; at most {most} is expected")
    return value


def _optional_size(fields: Mapping[str, Any], key: str) -> int | None:
    return None if fields.get(key) is None else require_size(fields, key)


def _flag(fields: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = fields.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ConfigError(f"config.json: {key} is {value!r}; true or false is expected")
    return value


def _choice[Kind: (QKNorm, MarkovKind)](kinds: type[Kind], fields: Mapping[str, Any], key: str, default: Kind) -> Kind:
    value = fields.get(key)
    if value is None:
        return default
    for kind in kinds:
        if kind.value == value:
            return kind
    raise ConfigError(f"config.json: {key} is {value!r}; expected is one of {', '.join(k.value for k in kinds)}")


def _mask_token(fields: Mapping[str, Any], vocab: int) -> int:
    value = fields.get("mask_token_id")
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < vocab:
        raise ConfigError(f"config.json: mask_token_id is {value!r}; a token from 0 to {vocab - 1} is expected")
    return value


def _temperatures(fields: Mapping[str, Any], block: int) -> tuple[float, ...]:
    values = fields.get("confidence_temperatures")
    if values is None:
        return ()
    if not isinstance(values, list) or len(values) != block:
        raise ConfigError(f"config.json: confidence_temperatures is {values!r}; {block} numbers are expected")
    return tuple(require_number({"confidence_temperatures": value}, "confidence_temperatures") for value in values)
