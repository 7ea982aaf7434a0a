"""Which blocks a row of replies is drafted at while training: anchors, the tokens after them, and what they see."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tfjax.train.small_data import REPLY, Packed


class Rows(NamedTuple):
    """Packed replies, those of one row drawn at one temperature (0: greedy). Shape: temperature float32 [rows]."""

    packed: Packed
    temperature: Any

    @property
    def token(self) -> Any:
        return self.packed.token


class Blocks(NamedTuple):
    """N blocks of K drafts in each of B rows.

    Attributes:
        anchor: int32 [B, N], the token of a row that each block follows.
        token: int32 [B, N, K], what the block's rows read: the anchor's token, then masks.
        position: int32 [B, N, K], in the document.
        previous: int32 [B, N, K], the true token before each draft.
        label: int32 [B, N, K], the true token that each draft should be.
        source: int32 [B, N, K], the place in the row whose output tells the target's distribution of the label.
        live: bool [B, N, K], false past the reply's end and in blocks that no reply has.
        seen: bool [B, N, T], the context that a block reads: its document before the anchor, the anchor left out.
    """

    anchor: jax.Array
    token: jax.Array
    position: jax.Array
    previous: jax.Array
    label: jax.Array
    source: jax.Array
    live: jax.Array
    seen: jax.Array


def can_anchor(batch: Packed) -> jax.Array:
    """Where a reply's token has another one after it. Shape: bool [B, T]."""
    reply = batch.kind == REPLY
    follows = reply[:, 1:] & (batch.segment[:, 1:] == batch.segment[:, :-1])
    return jnp.pad(reply[:, :-1] & follows, ((0, 0), (0, 1)))


def sample_anchors(key: jax.Array, batch: Packed, count: int) -> jax.Array:
    """Anchors of each row, all different; those that a row lacks are places where nothing is drafted.

    Shape: int32 [B, count].
    """
    chance = jnp.where(can_anchor(batch), jax.random.uniform(key, batch.token.shape), -1)
    return jax.lax.top_k(chance, count)[1].astype(jnp.int32)


def lay_out(batch: Packed, anchor: jax.Array, depth: int, mask_token: int) -> Blocks:
    """Blocks of `depth` drafts after the anchors. Shape: anchor int32 [B, N], in any order."""
    length = batch.token.shape[1]
    source = anchor[..., None] + jnp.arange(depth)
    at = jnp.minimum(source, length - 1)
    after = jnp.minimum(source + 1, length - 1)
    own = _take(batch.segment, anchor)
    follows = (source + 1 < length) & (_take(batch.segment, after) == own[..., None])
    live = jnp.cumprod(follows & _take(can_anchor(batch), anchor)[..., None], -1).astype(bool)
    first = jnp.arange(depth) == 0
    return Blocks(
        anchor=anchor,
        token=jnp.where(first, _take(batch.token, anchor)[..., None], mask_token),
        position=_take(batch.position, anchor)[..., None] + jnp.arange(depth),
        previous=_take(batch.token, at),
        label=_take(batch.token, after),
        source=at,
        live=live,
        seen=(batch.segment[:, None] == own[..., None]) & (jnp.arange(length) < anchor[..., None]),
    )


def take_states(states: jax.Array, blocks: Blocks) -> jax.Array:
    """The target's states that tell the labels' distributions. Shapes: [B, T, D] -> [B, N, K, D]."""
    rows, count, depth = blocks.source.shape
    flat = jnp.take_along_axis(states, blocks.source.reshape(rows, -1, 1), 1)
    return flat.reshape(rows, count, depth, -1)


def _take(values: jax.Array, at: jax.Array) -> jax.Array:
    """values[b, at[b, ...]]. Shapes: [B, T], int32 [B, ...] -> as `at`."""
    return jnp.take_along_axis(values, at.reshape(len(at), -1), 1).reshape(at.shape)
