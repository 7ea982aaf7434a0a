"""DSpark's Markov head: what the token before says about a draft, added to the block's logits."""

from __future__ import annotations

import enum

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


class MarkovHead(nnx.Module):
    """bias = W2 f(W1[previous]), walked from draft to draft.

    f is the identity (vanilla), e * sigmoid(gate [h; e]) (gated), or tanh of a recurrent cell's output (rnn).
    Source: DeepSpec's DSpark, section "Markov head".

    Shapes: w1 [previous rows, r], w2 [draft V, r].
    """

    def __init__(self, kind: MarkovKind, rank: int, hidden: int, sizes: tuple[int, int], dtype: jnp.dtype):
        """`sizes` are the rows of w1 and w2."""
        self.kind, self.rank = kind, rank
        self.w1 = nnx.Param(jnp.zeros((sizes[0], rank), dtype))
        self.w2 = nnx.Param(jnp.zeros((sizes[1], rank), dtype))
        gated, recurrent = kind is MarkovKind.GATED, kind is MarkovKind.RNN
        self.gate = Linear(hidden + rank, rank, bias=True, dtype=dtype) if gated else None
        self.joint = Linear(2 * rank + hidden, 3 * rank, bias=True, dtype=dtype) if recurrent else None
        self.row: nnx.Param[jax.Array] | None = None

    def know_only(self, ids: jax.Array, vocab: int) -> None:
        """Tell which tokens the rows of w1 stand for, where it has fewer rows than the target has tokens.

        Shape: ids int32 [previous rows].
        """
        nowhere = jnp.full(vocab, -1, jnp.int32)
        self.row = nnx.Param(nowhere.at[ids].set(jnp.arange(len(ids), dtype=jnp.int32)))

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
