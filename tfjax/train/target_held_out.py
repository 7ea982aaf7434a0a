"""How well a trained target continues text that it did not learn."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from tfjax.train.lfm2_dense import Lfm2Shape
from tfjax.train.target_model import logits
from tfjax.train.target_step import TrainState

MOST_BATCHES = 64


def measure(state: TrainState, rows: NDArray[np.uint16], shape: Lfm2Shape, batch: int) -> dict[str, Any]:
    """Nats a token, and the share of tokens that were the likeliest, over at most 64 batches.

    Shape: rows [n, T + 1].
    """
    rows = rows[: MOST_BATCHES * batch]
    sums = np.zeros(2)
    for start in range(0, len(rows), batch):
        part = rows[start : start + batch]
        filled = np.zeros((min(batch, len(rows)), rows.shape[1]), np.int32)
        filled[: len(part)] = part
        sums += np.asarray(_sums(state, jnp.asarray(filled), len(part), shape), np.float64)
    count = rows.shape[0] * (rows.shape[1] - 1)
    return {"tokens": count, "loss": round(sums[0] / count, 4), "agreement": round(sums[1] / count, 4)}


@functools.partial(jax.jit, static_argnames="shape")
def _sums(state: TrainState, rows: jax.Array, used: int, shape: Lfm2Shape) -> jax.Array:
    """Sums over the first `used` rows."""
    label = rows[:, 1:]
    found = logits(state.params, state.biases, rows[:, :-1], shape).logits
    cross = optax.softmax_cross_entropy_with_integer_labels(found, label)
    likeliest = jnp.argmax(found, -1) == label
    real = (jnp.arange(len(rows)) < used)[:, None]
    return jnp.stack([jnp.sum(cross * real), jnp.sum(likeliest * real)])
