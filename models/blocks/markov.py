"""DSpark's Markov head: what the token before says about a draft, added to the block's logits."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.kernels.matmul import rows_matmul
from tfjax.models.blocks.linear import Linear


class MarkovKind(enum.Enum):
    """How the head makes its bias of the token before, by the names in `markov_head_type`."""

    VANILLA = "vanilla"
    GATED = "gated"
    RNN = "rnn"


@dataclass(frozen=True, slots=True)
class MarkovSizes:
    """Shapes of the head.

    Attributes:
        rank: columns of both matrices.
        hidden: width of the block's rows.
        vocab: tokens of the target.
        previous: rows of the first matrix, for the token before: `vocab`, or those of the second.
        drafts: rows of the second, for the draft.
    """

    rank: int
    hidden: int
    vocab: int
    previous: int
    drafts: int


class MarkovHead(nnx.Module):
    """bias = W2 f(W1[previous]), walked from draft to draft.

    f is the identity (vanilla), e * sigmoid(gate [h; e]) (gated), or tanh of a recurrent cell's output (rnn).
    Source: DeepSpec's DSpark, section "Markov head".

    Shapes: w1 [previous, r], w2 [drafts, r]; row int32 [V], w1's row of each token, where it has not all.
    """

    def __init__(self, kind: MarkovKind, sizes: MarkovSizes, dtype: jnp.dtype):
        rank, hidden = sizes.rank, sizes.hidden
        self.rank = rank
        self.w1 = nnx.Param(jnp.zeros((sizes.previous, rank), dtype))
        self.w2 = nnx.Param(jnp.zeros((sizes.drafts, rank), dtype))
        self.row = nnx.Param(jnp.zeros(sizes.vocab, jnp.int32)) if sizes.previous != sizes.vocab else None
        gated, recurrent = kind is MarkovKind.GATED, kind is MarkovKind.RNN
        self.gate = Linear(hidden + rank, rank, bias=True, dtype=dtype) if gated else None
        self.joint = Linear(2 * rank + hidden, 3 * rank, bias=True, dtype=dtype) if recurrent else None

    def know(self, ids: jax.Array, vocab: int) -> None:
        """Tell which tokens can be drafted: those of the leading rows of w2, and of w1 where it has not all.

        Shape: ids int32 [C]; rows of w2 from C on are padding.
        """
        if self.row is not None:
            nowhere = jnp.full(vocab, -1, jnp.int32)
            self.row = nnx.Param(nowhere.at[ids].set(jnp.arange(len(ids), dtype=jnp.int32)))
        if len(ids) != self.w2.shape[0]:
            self.w2 = nnx.Param(self.w2[...][: len(ids)])

    def embed(self, previous: jax.Array) -> jax.Array:
        """W1's row of each token; zeros for one that it has not. Shapes: int32 [...] target ids -> [..., r]."""
        if self.row is None:
            return self.w1[...][previous]
        row = self.row[...][previous]
        return jnp.where(row[..., None] >= 0, self.w1[...][row], 0)

    def start(self, streams: int) -> jax.Array:
        """The state before a block's first draft. Shape: float32 [S, r]; only rnn has one, others carry no columns."""
        return jnp.zeros((streams, self.rank if self.joint is not None else 0), jnp.float32)

    def __call__(self, state: jax.Array, previous: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array]:
        """One draft further in every stream.

        Shapes: state as from `start`; previous int32 [S], target ids; h [S, D], the final-normed row of this draft
        -> bias float32 [S, draft V] and the new state.
        """
        features, state = self._features(state, self.embed(previous), h)
        return rows_matmul(features, self.w2[...]), state

    def _features(self, state: jax.Array, e: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array]:
        wide = e.astype(jnp.float32)
        if self.gate is not None:
            gate = self.gate(jnp.concatenate([h, e], -1)).astype(jnp.float32)
            return (jax.nn.sigmoid(gate) * wide).astype(e.dtype), state
        if self.joint is not None:
            joint = self.joint(jnp.concatenate([state.astype(e.dtype), e, h], -1)).astype(jnp.float32)
            gate, candidate, out = jnp.split(joint, 3, -1)
            kept = jax.nn.sigmoid(gate)
            return jnp.tanh(out).astype(e.dtype), kept * state + (1 - kept) * jnp.tanh(candidate)
        return e, state
