"""A small Llama that drafts for a larger target: it reads the target's token embedding through a learned projection.

Its head may know fewer tokens than the target; `d2t` of the checkpoint then says which. It is a matrix of its own, or
the target's embedding of these tokens through another projection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.models import llama
from tfjax.models.blocks.linear import Linear
from tfjax.models.blocks.norm import RMSNorm
from tfjax.models.config import ConfigError, flag, require_size
from tfjax.models.family import Family, Source
from tfjax.models.llama import LlamaConfig, LlamaLayer, run_layers
from tfjax.models.rows import Forward, LayerCache, Rows

OWN_KEYS = frozenset({"target_hidden_size", "draft_vocab_size", "tie_word_embeddings", "vocabulary_sha256"})


@dataclass(frozen=True, slots=True)
class SmallDrafterConfig:
    """Shapes and numbers of a small drafter.

    Attributes:
        body: its layers; `body.vocab` is the target's vocabulary.
        target_hidden: width of the target's token embedding.
        draft_vocab: rows of the head.
        projected_head: whether the head is made of the target's embedding.
        vocabulary_sha256: hash of the tokens that it was trained with, None where the config does not tell.
    """

    body: LlamaConfig
    target_hidden: int
    draft_vocab: int
    projected_head: bool
    vocabulary_sha256: str | None = None

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> SmallDrafterConfig:
        """Read a config.json: a Llama's keys, `target_hidden_size`, and `draft_vocab_size` (all tokens without it).

        `tie_word_embeddings` says that the head is projected.

        Raises:
            ConfigError: naming the key that is missing, inconsistent or not supported.
        """
        body = LlamaConfig.from_hf({key: value for key, value in config.items() if key not in OWN_KEYS})
        draft_vocab = require_size(config, "draft_vocab_size", default=body.vocab)
        if draft_vocab > body.vocab:
            raise ConfigError(f"config.json: draft_vocab_size {draft_vocab} is more than vocab_size {body.vocab}")
        target_hidden = require_size(config, "target_hidden_size")
        return cls(
            body, target_hidden, draft_vocab, flag(config, "tie_word_embeddings"), config.get("vocabulary_sha256")
        )

    @property
    def vocab(self) -> int:
        return self.body.vocab

    @property
    def context(self) -> int:
        return self.body.context


class SmallDrafter(nnx.Module):
    """The drafter's own parameters, and the target's embedding, which the target owns: see `join`."""

    def __init__(self, config: SmallDrafterConfig, dtype: jnp.dtype):
        self.config = config
        body = config.body
        self.embedding = nnx.Param(jnp.zeros((body.vocab, config.target_hidden), dtype))
        self.embed_proj = Linear(config.target_hidden, body.hidden, bias=False, dtype=dtype)
        self.layers = nnx.List([LlamaLayer(body, dtype) for _ in range(body.layers)])
        self.norm = RMSNorm(body.hidden, body.norm_eps, dtype)
        self.head = nnx.Param(jnp.zeros((config.draft_vocab, body.hidden), dtype))
        self.head_proj = (
            nnx.Param(jnp.zeros((config.target_hidden, body.hidden), dtype)) if config.projected_head else None
        )

    def join(self, embedding: jax.Array, ids: jax.Array) -> None:
        """Take the target's embedding, and make a projected head of it.

        Shapes: embedding [V, target D], ids int32 [draft V] (the token of each row of the head).
        """
        self.embedding = nnx.Param(embedding)
        if self.head_proj is not None:
            rows = jnp.matmul(embedding[ids], self.head_proj[...], preferred_element_type=jnp.float32)
            self.head = nnx.Param(rows.astype(embedding.dtype))
            self.head_proj = None

    def __call__(
        self, cache: tuple[LayerCache, ...], rows: Rows, *, tile_rows: int, taps: tuple[int, ...] = ()
    ) -> Forward:
        """One forward of the rows. `taps` are layers whose features are wanted."""
        x = self.embed_proj(self.embedding[...][rows.token])
        done = run_layers(self.config.body, self.layers, x, cache, rows, tile_rows=tile_rows, taps=taps)
        return done._replace(hidden=self.norm(done.hidden))

    @property
    def head_weight(self) -> jax.Array:
        """Shape: [draft V, D]."""
        return self.head[...]


def sources(config: SmallDrafterConfig) -> dict[str, tuple[Source, ...]]:
    """Which checkpoint tensors make each parameter; the embedding comes from the target instead."""
    body = config.body
    found = llama.sources(body)
    del found["embedding"]
    found["embed_proj.weight"] = (Source("embed_proj.weight", (body.hidden, config.target_hidden)),)
    if config.projected_head:
        del found["head"]
        found["head_proj"] = (Source("head_proj.weight", (config.target_hidden, body.hidden)),)
    else:
        found["head"] = (Source("lm_head.weight", (config.draft_vocab, body.hidden)),)
    return found


FAMILY: Family[SmallDrafterConfig] = Family(
    architecture="TfjaxSmallDrafter",
    config_from_hf=SmallDrafterConfig.from_hf,
    build=SmallDrafter,
    sources=sources,
    empty_cache=lambda config, *sizes: llama.empty_cache(config.body, *sizes),
    cache_bytes_per_position=lambda config, dtype: llama.cache_bytes_per_position(config.body, dtype),
    cache_bytes_per_lane=lambda config, dtype: llama.cache_bytes_per_lane(config.body, dtype),
)
