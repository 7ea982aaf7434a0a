"""Both ends of a DSpark drafter: what it reads of the target, and what makes drafts of its rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.kernels.matmul import rows_matmul
from tfjax.models.blocks.confidence import ConfidenceHead
from tfjax.models.blocks.linear import Linear
from tfjax.models.blocks.markov import MarkovHead, MarkovSizes
from tfjax.models.blocks.norm import RMSNorm
from tfjax.models.dspark_config import DSparkConfig


class DSparkEnds(nnx.Module):
    """What every form of the drafter has beside its layers: its own parameters, and what `join` gives of the target."""

    def __init__(self, config: DSparkConfig, dtype: jnp.dtype):
        self.config = config
        c = config
        self.fc = Linear(len(c.taps) * c.target_hidden, c.hidden, bias=False, dtype=dtype)
        self.context_norm = RMSNorm(c.hidden, c.norm_eps, dtype)
        sizes = MarkovSizes(c.markov_rank, c.hidden, c.vocab, c.markov_rows, c.draft_vocab)
        self.markov = MarkovHead(c.markov, sizes, dtype)
        size = c.hidden + (c.markov_rank if c.confidence_with_markov else 0)
        self.confidence_head = ConfidenceHead(size, c.confidence_temperatures) if c.confidence else None
        self.embedding = nnx.Param(jnp.zeros((c.vocab, c.hidden), dtype))
        self.head = nnx.Param(jnp.zeros((c.draft_vocab, c.hidden), dtype))
        self.ids = nnx.Param(jnp.arange(c.draft_vocab, dtype=jnp.int32))

    def join(self, embedding: jax.Array, head: jax.Array, ids: jax.Array) -> None:
        """Take the target's embedding and head where the drafter has none of its own, and the tokens it can draft.

        Shapes: embedding, head [V, target D]; ids int32 [C], the token of each row of the drafter's head. With a
        whole vocabulary its rows from C on are padding and cannot be drafted.
        """
        c = self.config
        if not c.own_embedding:
            self.embedding = nnx.Param(embedding)
        if not c.own_head:
            self.head = nnx.Param(head if c.draft_vocab == c.vocab else head[ids])
        self.markov.know(ids, max(c.vocab, embedding.shape[0]))
        self.ids = nnx.Param(ids)

    def logits(self, h: jax.Array) -> jax.Array:
        """Without the Markov bias. Shapes: h [..., D] -> float32 [..., C]."""
        known = self.ids.shape[0]
        flat = rows_matmul(h.reshape(-1, h.shape[-1]), self.head[...])[:, :known]
        return flat.reshape(*h.shape[:-1], known)

    def confidence(self, h: jax.Array, previous: jax.Array, place: jax.Array | int) -> jax.Array | None:
        """The chance that draft `place` lands, given that those before it did. None without a confidence head.

        Shapes: h [..., D], previous int32 [...] (target ids), place int32 broadcast to [...], from 0
        -> float32 [...].
        """
        if self.confidence_head is None:
            return None
        x = jnp.concatenate([h, self.markov.embed(previous)], -1) if self.config.confidence_with_markov else h
        return self.confidence_head(x, place)

    def inverse_frequency(self) -> jax.Array:
        """Shape: float32 [H/2]."""
        return jnp.asarray(self.config.rope.inverse_frequency(self.config.head_dim))
