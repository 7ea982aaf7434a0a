"""How often a drafter's greedy drafts land, by depth, on replies that it has not seen."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.train.small_config import SmallConfig
from tfjax.train.small_data import PAD, REPLY, Document, Packed, pack
from tfjax.train.small_dense import places
from tfjax.train.small_model import Frozen, Params, student_logits

DEPTHS = 8


def measure(
    params: Params, frozen: Frozen, documents: Sequence[Document], config: SmallConfig, *, length: int, batch: int
) -> dict[str, Any]:
    """Acceptance by depth.

    A draft at depth d counts only where the d - 1 before it landed, and then the drafter has read exactly the reply's
    own tokens: so one forward over the reply gives the drafts of every depth at every position.

    Returns:
        chance: by depth, share of drafts that land where all before them did.
        chain: by depth, share of drafts of that many tokens that land whole.
        tokens_per_round: 1 and the sum of `chain`: tokens that a round emits with 8 drafts.
        positions: drafts of one token that were compared.
    """
    packed = pack(documents, length)
    rows = len(packed.token)
    filled = Packed(*(_filled(part, batch) for part in packed))
    found = []
    for start in range(0, rows, batch):
        part = Packed(*(jnp.asarray(array[start : start + batch]) for array in filled))
        found.append(_landed(params, frozen, part, config))  # read only when all are queued
    landed = np.concatenate([np.asarray(part) for part in found])[:rows]
    return by_depth(landed, drafted_positions(packed))


def drafted_positions(packed: Packed) -> NDArray[np.bool_]:
    """Where a token of a reply follows another one: the reply's first token is never drafted. Shape: [rows, T - 1]."""
    same = packed.segment[:, 1:] == packed.segment[:, :-1]
    found: NDArray[np.bool_] = same & (packed.kind[:, :-1] == REPLY) & (packed.kind[:, 1:] == REPLY)
    return found


def by_depth(landed: NDArray[np.bool_], drafted: NDArray[np.bool_], depths: int = DEPTHS) -> dict[str, Any]:
    """Chances and chains from where single drafts land. Shapes: [rows, n] each."""
    chance: list[float] = []
    whole = drafted & landed
    tried, kept = drafted, whole
    positions = int(drafted.sum())
    for depth in range(1, depths + 1):
        count = int(tried.sum())
        chance.append(int(kept.sum()) / count if count else 0.0)
        if depth < depths:
            tried = kept[:, :-1] & drafted[:, depth:]
            kept = tried & landed[:, depth:]
    chain = np.cumprod(chance)
    return {
        "chance": [round(value, 4) for value in chance],
        "chain": [round(float(value), 4) for value in chain],
        "tokens_per_round": round(1 + float(chain.sum()), 4),
        "positions": positions,
    }


@functools.partial(jax.jit, static_argnums=3)
def _landed(params: Params, frozen: Frozen, batch: Packed, config: SmallConfig) -> jax.Array:
    """Whether the likeliest token at each position is the one that follows. Shape: bool [B, T - 1]."""
    at = places(batch.segment, batch.position)
    likeliest = jnp.argmax(student_logits(params, frozen, batch.token, config, at)[:, :-1], -1)
    landed: jax.Array = frozen.draft_ids[likeliest] == batch.token[:, 1:]
    return landed


def _filled(array: NDArray[np.int32], batch: int) -> NDArray[np.int32]:
    """With empty rows up to a whole number of batches."""
    return np.pad(array, ((0, -len(array) % batch), (0, 0)), constant_values=PAD)
