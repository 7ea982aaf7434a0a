"""Contract of the keyed draw: ties, noise, tokens that cannot be drawn and numbers that are not finite."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.kernels.contract.controls import Control
from tfjax.kernels.contract.problem import (
    BUCKETS,
    ROWS,
    SMALL_BUCKETS,
    SMALL_ROWS,
    Call,
    Judged,
    Problem,
    Style,
    Subject,
    floats,
    placed,
    selected,
    wide,
)
from tfjax.kernels.keyed_draw import NOT_FINITE, DrawKeys, keyed_draw
from tfjax.kernels.noise import threefry_2x32
from tfjax.kernels.specs import SPECS

TEMPERATURES = (0.0, 0.7, 0.0, 1e-30, 1.0, 5.0, 0.8)
"""Of the rows in turn. Their number has no factor in common with the turns below."""

LAST = 2
"""Turn of the rows whose largest logit is their last, alone."""

UNSOUND = (np.nan, np.inf, -np.inf)
"""In turn in every fifth row, at a place of its own."""

TIES = 20
"""Tokens of every greedy row that share the largest logit."""

SMALL_VOCAB = 1300
"""Two blocks, which overlap."""

NO_TOKEN = -2
"""Stands for what is neither a token nor NOT_FINITE."""

EXACT, LACKING = 1e-9, 1e-5
"""Bounds: of tokens that are certain, and of what a sampled token's score may lack by roundings of noise and logits."""


class KeyedDraws(Problem):
    """Rows with logits and keys of their own."""

    places = ("plain",)

    def __init__(self, vocab: int, style: Style, *, scattered: bool = False, small: bool = False):
        self.rows = SMALL_ROWS if small else ROWS
        self.buckets = SMALL_BUCKETS if small else BUCKETS
        self.vocab, self.key = vocab, (vocab, scattered, self.rows)
        row = np.arange(self.rows)
        random = np.random.default_rng(0)
        temperature = np.array(TEMPERATURES, np.float32)[row % len(TEMPERATURES)]
        self.masked, self.unsound = row % 3 == 1, row % 5 == 4
        logits = floats(1, (self.rows, vocab), style)
        capped = jnp.minimum(logits, jax.lax.top_k(logits, TIES)[0][:, -1:])
        logits = jnp.where((temperature == 0)[:, None], capped, logits)
        best = 2 * jnp.abs(jnp.max(logits, -1)) + 1
        last = (row % len(TEMPERATURES) == LAST)[:, None] & (jnp.arange(vocab) == vocab - 1)
        logits = jnp.where(last, best[:, None], logits)
        hidden = random.random((self.rows, vocab)) < 0.1
        hidden[:, -1] = False
        logits = jnp.where(hidden & self.masked[:, None], -jnp.inf, logits)
        at = row[self.unsound]
        # A masked row may hold -inf, so that NaN or inf makes it one that is not finite.
        values = [UNSOUND[i % 3] if not self.masked[i] else UNSOUND[i % 2] for i in at]
        logits = logits.at[at, (at * 7919 + vocab - 1) % vocab].set(jnp.array(values, jnp.float32))
        self.data = {
            "logits": logits,
            "ids": jnp.array(random.permutation(2 * vocab)[:vocab], jnp.int32) if scattered else None,
            "keys": DrawKeys(
                jnp.array(temperature),
                jnp.array(random.integers(0, 2**32, (self.rows, 2), dtype=np.uint32)),
                jnp.array(random.integers(1, 100_000, self.rows).astype(np.int32)),
                jnp.array(self.masked),
            ),
        }

    def arrange(self, rows: Sequence[int], bucket: int, place: str) -> Any:
        return selected(rows, bucket)

    def step(self, call: Call, data: Any, arranged: Any) -> tuple[tuple[jax.Array, ...], jax.Array]:
        keys = DrawKeys(*(x[arranged["select"]] for x in data["keys"]))
        token = call(placed(data["logits"], arranged), keys, arranged["count"], data["ids"])
        known = (token >= NOT_FINITE) & (token < self.vocab)
        return (jnp.where(known, token.astype(jnp.float32), jnp.nan),), jnp.int32(0)

    def judge(self, rows: Sequence[int], outputs: Sequence[NDArray[Any]]) -> list[Judged]:
        at = np.asarray(rows)
        token, unsound = np.nan_to_num(outputs[0], nan=NO_TOKEN).astype(np.int64), self.unsound[at]
        scores = self._scores(at)
        best = scores.argmax(-1)  # The first of the largest.
        certain = unsound | (np.asarray(self.data["keys"].temperature)[at] == 0)
        # Of sampled tokens two may be level but for a rounding; they are judged by what they lack of the best.
        told, wanted = np.where(certain, token, best), np.where(unsound, NOT_FINITE, best)
        lacking = scores.max(-1) - scores[np.arange(len(at)), token % self.vocab]
        lacking = np.where(unsound, 0, np.where(token < 0, np.inf, lacking))
        ones = np.ones((len(at), 1))
        return [
            Judged("token", wide(told)[:, None] + 3, wide(wanted)[:, None] + 3, ones, EXACT, EXACT),
            Judged("lacking", 1 + lacking[:, None], ones, ones, LACKING, LACKING),
        ]

    def _scores(self, at: NDArray[Any]) -> NDArray[np.float64]:
        """What decides each row's draw, in float64. Shape: [rows, V]."""
        keys = DrawKeys(*(np.asarray(x)[at] for x in self.data["keys"]))
        logits = wide(self.data["logits"][at])
        ids = jnp.arange(self.vocab) if self.data["ids"] is None else self.data["ids"]
        counter = (jnp.array(keys.position, jnp.uint32)[:, None], ids.astype(jnp.uint32)[None])
        bits = wide(threefry_2x32((keys.seed[:, :1], keys.seed[:, 1:]), counter))
        noise = -np.log(-np.log1p(-np.minimum((bits + 0.5) * 2.0**-32, 1 - 2.0**-24)))
        with np.errstate(invalid="ignore", over="ignore"):
            temperature = wide(keys.temperature)[:, None]
            scaled = (logits - logits.max(-1, keepdims=True)) / np.where(temperature > 0, temperature, 1)
        scores: NDArray[np.float64] = np.where(temperature > 0, scaled + noise, logits)
        return np.nan_to_num(scores, nan=0.0)


NAMES = ("SmolLM2-135M", "Llama-3-8B", "LFM2.5-1.2B", "Qwen3-4B", "lfm2-moe-code")

_LEAST, _MOST = (
    f"jnp.{which}(jnp.where(score == jnp.max(score), column, {other}))"
    for which, other in (("min", "columns"), ("max", "0"))
)

DRAW = Subject(
    name="keyed_draw",
    public=keyed_draw,
    device="tfjax.kernels.gpu.keyed_draw",
    cases={
        **{f"{name}, {SPECS[name].vocab}": functools.partial(KeyedDraws, SPECS[name].vocab) for name in NAMES},
        "a drafter's 32000": functools.partial(KeyedDraws, 32000, scattered=True),
    },
    small=functools.partial(KeyedDraws, SMALL_VOCAB, scattered=True, small=True),
    controls=(
        Control("ties go to the last", "reference", ((_LEAST, _MOST),)),
        Control(
            "the noise of the position before", "reference", (("keys.position, token", "keys.position - 1, token"),)
        ),
        Control("the noise of the column", "stress", (("token.astype(jnp.uint32)", "column.astype(jnp.uint32)"),)),
        Control("the last block left out", "reference", (("layout=layout) < blocks", "layout=layout) < blocks - 1"),)),
        Control("NaN ignored", "reference", (("jnp.where(unsound > 0, NOT_FINITE, winner)", "winner"),)),
        Control(
            "blocks without their noise",
            "stress",
            (("(logits - peak) + noise\n        score", "(logits - peak)\n        score"),),
        ),
        Control("a neighbour's keys", "rows", (("_keys_of(keys_ref, row)", "_keys_of(keys_ref, row ^ 1)"),)),
        Control("stored one row too far", "bounds", (("column_ref[row] =", "column_ref[row + 1] ="),)),
    ),
)
