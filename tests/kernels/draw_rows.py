"""Rows to draw, by name, and what has to be drawn: the rules once more, row by row in float64 and plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tests.kernels.test_filters import reference as keep_reference
from tfjax.kernels.draw import Drawn, DrawRules, LaneTables, draw
from tfjax.kernels.noise import gumbel

VOCAB, LANES, POSITIONS, STOPS, ROWS = 64, 3, 40, 4, 8

drawn_by_rules = jax.jit(draw)


@dataclass(frozen=True, slots=True)
class Row:
    """One row's rules; the names are those of DrawRules."""

    lane: int = 0
    position: int = 10
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0
    prompt_end: int = 5
    biased: bool = False
    stops_banned: bool = False
    logprobs: bool = False


def rules_of(rows: Sequence[Row]) -> DrawRules:
    """The rows' rules as arrays."""

    def of(name: str, dtype: Any) -> NDArray[Any]:
        return np.array([getattr(row, name) for row in rows], dtype)

    seed = np.array([[row.seed & 0xFFFFFFFF, row.seed >> 32] for row in rows], np.uint32)
    integers = {name: of(name, np.int32) for name in ("position", "top_k", "prompt_end")}
    flags = {name: of(name, np.bool_) for name in ("biased", "stops_banned", "logprobs")}
    floats = ("temperature", "top_p", "min_p", "presence", "frequency", "repetition")
    return DrawRules(seed=seed, **integers, **flags, **{name: of(name, np.float32) for name in floats})


def tables(seed: int = 0) -> LaneTables:
    """Every lane has a history, a bias on some tokens and two stop tokens."""
    random = np.random.default_rng(seed)
    bias = np.where(random.random((LANES, VOCAB)) < 0.1, random.normal(0, 4, (LANES, VOCAB)), 0).astype(np.float32)
    stops = np.full((LANES, STOPS), VOCAB, np.int32)
    stops[:, :2] = random.integers(0, VOCAB, (LANES, 2))
    history = random.integers(0, VOCAB // 4, (LANES, POSITIONS)).astype(np.int32)
    return LaneTables(bias, stops, history)


def draw_rows(logits: NDArray[np.float32], rows: Sequence[Row], lanes: LaneTables) -> Drawn:
    """Draws up to ROWS rows, padded with rows that ask for nothing, so that all tests share one compiled program."""
    padding = ROWS - len(rows)
    logits = np.concatenate([logits, np.zeros((padding, VOCAB), np.float32)])
    every = [*rows, *[Row()] * padding]
    lane = np.array([row.lane for row in every], np.int32)
    drawn = drawn_by_rules(logits, rules_of(every), lanes, lane)
    return Drawn(*(np.asarray(x)[: len(rows)] for x in drawn))


def adjusted_reference(logits: NDArray[np.float32], row: Row, lanes: LaneTables) -> NDArray[np.float32]:
    """Bias, penalties over the row's own history, ban of stop tokens."""
    result = logits.astype(np.float32).copy()
    if row.biased:
        result += lanes.bias[row.lane]
    history = [int(token) for token in lanes.history[row.lane][: row.position]]
    for token in set(history):
        result[token] = result[token] / row.repetition if result[token] > 0 else result[token] * row.repetition
    for token, count in Counter(history[row.prompt_end :]).items():
        result[token] -= np.float32(row.frequency) * count + np.float32(row.presence)
    if row.stops_banned:
        result[[int(token) for token in lanes.stops[row.lane] if token < VOCAB]] = -np.inf
    return result


def token_reference(logits: NDArray[np.float32], row: Row, lanes: LaneTables) -> int:
    """The token that a row has to draw."""
    result = adjusted_reference(logits, row, lanes)
    if row.temperature == 0:
        return int(np.argmax(result))
    scaled = (result - result.max()) / np.float32(row.temperature)
    seed = jnp.array([[row.seed & 0xFFFFFFFF, row.seed >> 32]], jnp.uint32)
    noise = np.asarray(gumbel(seed, jnp.array([row.position], jnp.int32), jnp.arange(VOCAB)))[0]
    kept = keep_reference(scaled, row.top_k, row.top_p, row.min_p)
    return int(np.argmax(np.where(kept, scaled + noise, -np.inf)))


def logprobs_reference(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Log probabilities under the raw distribution."""
    wide = logits.astype(np.float64)
    return wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
