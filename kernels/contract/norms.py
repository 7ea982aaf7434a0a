"""Contracts of the kernels that take one row at a time: the summing norm and the embedding."""

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
from tfjax.kernels.embed_rows import embed_rows
from tfjax.kernels.specs import SPECS, TINY
from tfjax.kernels.sum_norm import sum_norm

LAYERS, LAYER, EPS, SPLIT = 2, 1, 1e-5, 4
VOCAB = 1000


class SumNorm(Problem):
    """A residual row, its parts and the norm."""

    places = ("plain",)

    def __init__(self, size: int, split: int, style: Style, *, small: bool = False):
        self.rows = SMALL_ROWS if small else ROWS
        self.buckets = SMALL_BUCKETS if small else BUCKETS
        self.key = (size, split, self.rows)
        parts = floats(1, (self.rows, size, split), style)
        if style is Style.CANCEL:  # Each pair of parts nearly cancels.
            parts = parts.at[..., 1::2].set(-parts[..., ::2] * (1 + 2.0**-12))
        self.data = {
            "parts": jnp.moveaxis(parts, 2, 1),
            "x": floats(2, (self.rows, size), style, dtype=jnp.bfloat16),
            "weight": floats(3, (LAYERS, size), Style.POSITIVE, dtype=jnp.bfloat16),
        }

    def arrange(self, rows: Sequence[int], bucket: int, place: str) -> Any:
        return selected(rows, bucket)

    def step(self, call: Call, data: Any, arranged: Any) -> tuple[tuple[jax.Array, ...], jax.Array]:
        parts = jnp.moveaxis(placed(data["parts"], arranged), 1, 0)
        x = placed(data["x"], arranged)
        return tuple(call(parts, x, data["weight"], jnp.int32(LAYER), arranged["count"], eps=EPS)), jnp.int32(0)

    def judge(self, rows: Sequence[int], outputs: Sequence[NDArray[Any]]) -> list[Judged]:
        at = np.asarray(rows)
        x, parts, weight = wide(self.data["x"][at]), wide(self.data["parts"][at]), wide(self.data["weight"][LAYER])
        summed = x + parts.sum(1)
        size = np.abs(x) + np.abs(parts).sum(1)
        spread = np.sqrt((summed**2).mean(-1, keepdims=True) + EPS)
        normed = summed / spread * weight
        # An element's rounding reaches the norm with its own size; the mean square is of all of them.
        norm_size = (size + np.abs(summed)) / spread * weight
        return [
            Judged("sum", wide(outputs[0]), summed, size, 3e-3, 6e-3),
            Judged("norm", wide(outputs[1]), normed, norm_size, 6e-3, 1.2e-2),
        ]


class Embedding(Problem):
    """Tokens by a table."""

    places = ("plain",)

    def __init__(self, size: int, style: Style, *, small: bool = False):
        self.rows = SMALL_ROWS if small else ROWS
        self.buckets = SMALL_BUCKETS if small else BUCKETS
        self.key = (size, self.rows)
        self.token = np.random.default_rng(0).integers(0, VOCAB, self.rows).astype(np.int32)
        self.token[:2] = 0, VOCAB - 1
        self.data = {"table": floats(1, (VOCAB, size), style, dtype=jnp.bfloat16)}

    def arrange(self, rows: Sequence[int], bucket: int, place: str) -> Any:
        token = np.full(bucket, VOCAB - 1, np.int32)
        token[: len(rows)] = self.token[np.asarray(rows, int)]
        return {**selected(rows, bucket), "token": token}

    def step(self, call: Call, data: Any, arranged: Any) -> tuple[tuple[jax.Array, ...], jax.Array]:
        return (call(data["table"], arranged["token"], arranged["count"]),), jnp.int32(0)

    def judge(self, rows: Sequence[int], outputs: Sequence[NDArray[Any]]) -> list[Judged]:
        wanted = wide(self.data["table"][self.token[np.asarray(rows)]])
        return [Judged("rows", wide(outputs[0]), wanted, np.abs(wanted) + 1e-30, 1e-30, 1e-30)]


NORM = Subject(
    name="sum_norm",
    public=sum_norm,
    device="tfjax.kernels.gpu.sum_norm",
    cases={
        f"{name} x {split} parts": functools.partial(SumNorm, SPECS[name].hidden, split)
        for name in ("Llama-3-8B", "SmolLM2-135M", "Qwen3-4B")
        for split in ((0, SPLIT) if name == "Llama-3-8B" else (SPLIT,))
    },
    small=functools.partial(SumNorm, TINY.hidden, SPLIT, small=True),
    controls=(
        Control("the last part dropped", "reference", (("range(1, split)", "range(1, split - 1)"),)),
        Control("residual dropped", "reference", (("wide = wide + total", "wide = total"),)),
        Control("another layer's weight", "reference", (("weight_ref.at[layer_ref[0]]", "weight_ref.at[0]"),)),
        Control("a neighbour's residual", "rows", (("read(x_ref.at[row])", "read(x_ref.at[row ^ 1])"),)),
        Control("mean taken over too few elements", "stress", (("/ x_ref.shape[1]", "/ (x_ref.shape[1] * 31 // 32)"),)),
        Control("sums stored one row too far", "bounds", (("sum_ref.at[row]", "sum_ref.at[row + 1]"),)),
    ),
)

EMBED = Subject(
    name="embed_rows",
    public=embed_rows,
    device="tfjax.kernels.gpu.embed_rows",
    cases={name: functools.partial(Embedding, SPECS[name].hidden) for name in ("Llama-3-8B", "SmolLM2-135M")},
    small=functools.partial(Embedding, TINY.hidden, small=True),
    controls=(
        Control("the token beside", "reference", (("token_ref[row]]", "token_ref[row] ^ 1]"),)),
        Control("a neighbour's token", "rows", (("token_ref[row]]", "token_ref[row ^ 1]]"),)),
        Control("stored one row too far", "bounds", (("out_ref.at[row]", "out_ref.at[row + 1]"),)),
    ),
)
