"""How many drafts of a block land on replies that the drafter has not seen, greedy and drawn."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.kernels.noise import gumbel
from tfjax.models.dspark_config import DSparkConfig
from tfjax.train.dense_target import TargetShape
from tfjax.train.dspark_blocks import Rows, can_anchor, lay_out, take_states
from tfjax.train.dspark_dense import (
    Params,
    block_states,
    embed_previous,
    lowered,
    markov_features,
    raw_confidence,
)
from tfjax.train.dspark_loss import Models, draft_logits, run_target
from tfjax.train.small_data import PAD, Packed

ANCHORS_AT_ONCE = 32


class Landed(NamedTuple):
    """What came of a block after each token. Shapes: [rows, T] and confidences [rows, T, K].

    Attributes:
        drafts: how many landed before the first that did not.
        most: how many there were tokens for; 0 where no block begins.
        confidence: of each draft before the sigmoid.
    """

    drafts: NDArray[np.int32]
    most: NDArray[np.int32]
    confidence: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of replies, each beginning where the one before ended.

    Attributes:
        drafts, most: as in `Landed`. Shape: int32 [rounds].
        confidence: before the sigmoid. Shape: float32 [rounds, K].
        tokens: that the rounds emit together.
    """

    drafts: NDArray[np.int32]
    most: NDArray[np.int32]
    confidence: NDArray[np.float32]
    tokens: int

    @classmethod
    def together(cls, parts: Sequence[Rounds]) -> Rounds:
        """All rounds of several sets."""
        return cls(
            np.concatenate([part.drafts for part in parts]),
            np.concatenate([part.most for part in parts]),
            np.concatenate([part.confidence for part in parts]),
            sum(part.tokens for part in parts),
        )

    @property
    def tried(self) -> NDArray[np.bool_]:
        """Which drafts count: all before them landed, and the reply has a token there. Shape: [rounds, K]."""
        places = np.arange(self.confidence.shape[1])
        tried: NDArray[np.bool_] = (self.drafts[:, None] >= places) & (self.most[:, None] > places)
        return tried

    @property
    def right(self) -> NDArray[np.bool_]:
        """Which drafts landed. Shape: [rounds, K]."""
        right: NDArray[np.bool_] = self.drafts[:, None] > np.arange(self.confidence.shape[1])
        return right


def land(
    params: Params, models: Models, rows: Rows, config: DSparkConfig, target: TargetShape, *, batch: int
) -> Landed:
    """Draft after every token of every reply.

    Up to the first draft that misses, the tokens before each draft are the reply's own; so the heads are given these.
    Of a reply that was drawn, the noise that drew it is redrawn as what it may have been, given the reply: the target
    draws the reply's token with it, and the drafter draws with the same.
    """
    count = len(rows.packed.token)
    filled = [_filled(part, batch) for part in (*rows.packed, rows.temperature, np.arange(count, dtype=np.int32))]
    found = []
    for start in range(0, count, batch):
        *packed, temperature, number = (jnp.asarray(part[start : start + batch]) for part in filled)
        found.append(_land(params, models, Packed(*packed), temperature, number, config, target))
    parts = (np.concatenate([np.asarray(part) for part in column])[:count] for column in zip(*found, strict=True))
    return Landed(*parts)


@functools.partial(jax.jit, static_argnums=(5, 6))
def _land(
    params: Params,
    models: Models,
    batch: Packed,
    temperature: jax.Array,
    number: jax.Array,
    config: DSparkConfig,
    target: TargetShape,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    read = run_target(target, models.target, batch, config.taps)
    low = lowered(params, read.features.dtype)
    rows, length = batch.token.shape

    def chunk(first: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        anchor = jnp.broadcast_to(first + jnp.arange(ANCHORS_AT_ONCE), (rows, ANCHORS_AT_ONCE))
        blocks = lay_out(batch, jnp.minimum(anchor, length - 1), config.block, config.mask_token)
        blocks = blocks._replace(live=blocks.live & (anchor < length)[..., None])
        h = block_states(low, models.target.embedding, read.features, batch.position, blocks, config)
        e = embed_previous(low["markov"], models.previous_of, blocks.previous)
        features = markov_features(low["markov"], config.markov, e, h)

        def of_row(row: tuple[jax.Array, ...]) -> jax.Array:
            h, features, state, label, position, temperature, number = row
            logits = draft_logits(low, models, h, features)
            return _draws(logits, state, label, position, temperature, number, models) == label

        inputs = (h, features, take_states(read.states, blocks), blocks.label, blocks.position, temperature, number)
        right = jax.lax.map(of_row, inputs) & blocks.live
        raw = raw_confidence(low["confidence"], h, e)
        return jnp.sum(jnp.cumprod(right, -1), -1), jnp.sum(blocks.live, -1), raw

    found = jax.lax.map(chunk, jnp.arange(0, length, ANCHORS_AT_ONCE))
    drafts, most, raw = (_side_by_side(part)[:, :length] for part in found)
    return drafts.astype(jnp.int32), most.astype(jnp.int32), raw


def _side_by_side(chunks: jax.Array) -> jax.Array:
    """Shapes: [chunks, B, N, ...] -> [B, chunks * N, ...]."""
    moved = jnp.moveaxis(chunks, 0, 1)
    return moved.reshape(moved.shape[0], -1, *moved.shape[3:])


def _draws(
    logits: jax.Array,
    state: jax.Array,
    label: jax.Array,
    position: jax.Array,
    temperature: jax.Array,
    number: jax.Array,
    models: Models,
) -> jax.Array:
    """What is drawn in one row. Shapes: logits [N, K, C], state [N, K, D], label, position [N, K] -> int32 [N, K]."""

    def drawn() -> jax.Array:
        noise = _noise_given(state, label, position, temperature, number, models)
        return jnp.argmax(logits / temperature + noise, -1)

    return models.ids[jax.lax.cond(temperature > 0, drawn, lambda: jnp.argmax(logits, -1))]


def _noise_given(
    state: jax.Array, label: jax.Array, position: jax.Array, temperature: jax.Array, number: jax.Array, models: Models
) -> jax.Array:
    """Gumbel noise of the draftable tokens, given that with it the target draws the label.

    The largest noisy logit has a Gumbel distribution around the logarithm of the summed exponentials and belongs to
    the label; each other one has its own Gumbel distribution, cut off there. A position of a reply has one noise
    whatever block it is drafted in. Source: Maddison, Tarlow and Minka, "A* sampling", top-down construction.

    Shape: float32 [N, K, C].
    """
    shape, kinds = label.shape, len(models.ids)
    seed = jnp.stack([jnp.full(label.size, number, jnp.uint32), jnp.zeros(label.size, jnp.uint32)], -1)
    fresh = gumbel(seed, position.reshape(-1) + 1, jnp.arange(kinds + 1)).reshape(*shape, kinds + 1)
    wide = jnp.einsum("...d,vd->...v", state, models.target.head, preferred_element_type=jnp.float32) / temperature
    own = jnp.take(wide, models.ids, -1)
    most = jax.nn.logsumexp(wide, -1, keepdims=True) + fresh[..., -1:]
    below = -jnp.logaddexp(-most, -(own + fresh[..., :-1]))
    is_label = models.ids == label[..., None]
    return jnp.where(is_label, most, below) - own


def walk(packed: Packed, landed: Landed) -> Rounds:
    """The rounds in which each reply is emitted, from its first token on."""
    anchors = np.asarray(can_anchor(Packed(*map(jnp.asarray, packed))))
    rows, places = [], []
    for row, places_of_row in enumerate(anchors):
        end = 0
        for at in np.flatnonzero(places_of_row).tolist():
            begins = at == 0 or not places_of_row[at - 1]  # a reply's last token is no anchor
            if begins or at == end:
                rows.append(row)
                places.append(at)
                end = at + int(landed.drafts[row, at]) + 1
    where = np.array(rows, int), np.array(places, int)
    return Rounds(landed.drafts[where], landed.most[where], landed.confidence[where], int(anchors.sum()))


def figures(rounds: Rounds) -> dict[str, Any]:
    """Acceptance by depth, and tau.

    Returns:
        chance: by depth, share of drafts that land where all before them did.
        tokens_per_round: tau.
        rounds: how many.
    """
    tried = rounds.tried
    right = tried & rounds.right
    share = right.sum(0) / np.maximum(1, tried.sum(0))
    return {
        "chance": [round(float(value), 4) for value in share],
        "tokens_per_round": round(rounds.tokens / max(1, len(tried)), 4),
        "rounds": len(tried),
    }


def _filled(array: NDArray[Any], batch: int) -> NDArray[Any]:
    """With empty rows up to a whole number of batches."""
    return np.pad(array, [(0, -len(array) % batch)] + [(0, 0)] * (array.ndim - 1), constant_values=PAD)
