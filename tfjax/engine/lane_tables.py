"""The tables on the device that a lane's draws share: bias, banned stop tokens, history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfjax.engine.api import Sampling
from tfjax.engine.lane_sampling import LONGEST_STOPS
from tfjax.kernels.draw import LaneTables


def empty_tables(lanes: int, vocab: int, positions: int) -> LaneTables:
    """Tables of `lanes` lanes that ask for nothing."""
    return LaneTables(
        bias=jnp.zeros((lanes, vocab), jnp.float32),
        stops=jnp.full((lanes, LONGEST_STOPS), vocab, jnp.int32),
        history=jnp.zeros((lanes, positions), jnp.int32),
    )


def bytes_per_lane(vocab: int, context: int) -> int:
    """Bytes of one lane's tables."""
    return 4 * (vocab + LONGEST_STOPS + context)


def needs_tables(sampling: Sampling) -> bool:
    """Whether bias or stops must be set for a stream; its draws never look at another's."""
    return bool(sampling.logit_bias or sampling.min_tokens)


def set_tables(tables: LaneTables, lane: int, sampling: Sampling, stop_ids: frozenset[int]) -> LaneTables:
    """Set a lane's bias and stops. `tables` is donated: use the returned ones from here on."""
    vocab = tables.bias.shape[1]
    bias = np.zeros(vocab, np.float32)
    for token, value in sampling.logit_bias:
        bias[token] = value
    stops = np.full(LONGEST_STOPS, vocab, np.int32)
    stops[: len(stop_ids)] = sorted(stop_ids)
    changed: LaneTables = _set_lane(tables, lane, bias, stops)
    return changed


def set_history(tables: LaneTables, lane: int, tokens: Sequence[int]) -> LaneTables:
    """Set the tokens at a lane's first positions, whose rows it reuses. `tables` is donated, as in `set_tables`."""
    history = np.zeros(tables.history.shape[1], np.int32)
    history[: len(tokens)] = tokens
    changed: LaneTables = _set_lane_history(tables, lane, history)
    return changed


def _set_rows(tables: LaneTables, lane: Any, bias: Any, stops: Any) -> LaneTables:
    return tables._replace(bias=tables.bias.at[lane].set(bias), stops=tables.stops.at[lane].set(stops))


def _set_history_row(tables: LaneTables, lane: Any, history: Any) -> LaneTables:
    return tables._replace(history=tables.history.at[lane].set(history))


_set_lane = jax.jit(_set_rows, donate_argnums=0)
_set_lane_history = jax.jit(_set_history_row, donate_argnums=0)
