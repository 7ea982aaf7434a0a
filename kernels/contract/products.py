"""Contracts of the layer-indexed products."""

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
from tfjax.kernels.gpu.plans import Form, Plan, split_of
from tfjax.kernels.layer_matmul import layer_glu, layer_matmul
from tfjax.kernels.packed import Weight
from tfjax.kernels.specs import SPECS, TINY

LAYERS, LAYER = 2, 1
JUDGED_COLUMNS = 96
MODULE = "tfjax.kernels.gpu.layer_matmul"


class Product(Problem):
    """Rows by one matrix, as parts or gated, with a bias or without."""

    places = ("plain",)

    def __init__(
        self,
        inner: int,
        columns: int,
        split: int,
        style: Style,
        *,
        gated: bool,
        rows: int,
        buckets: tuple[int, ...],
        biased: bool = False,
    ):
        self.rows, self.buckets, self.split, self.gated = rows, buckets, split, gated
        self.key: tuple[Any, ...] = (inner, columns, split, gated, rows, biased)
        height = columns * (2 if gated else 1)
        # Gates of a size where neither side of the nonlinearity hides what comes in.
        scale = inner**-0.5 if gated and style is not Style.POSITIVE else 0.5 / inner if gated else 1.0
        self.data = {
            "x": floats(1, (rows, inner), style, dtype=jnp.bfloat16),
            "weight": self.weight((LAYERS, height, inner), style, scale),
        }
        if biased:
            # As large as the sums, so that a lost one shows.
            bias = floats(3, (LAYERS, height), style) * scale * inner**0.5
            self.data["bias"] = bias.astype(jnp.bfloat16)
        judged = np.random.default_rng(0).choice(columns, min(columns, JUDGED_COLUMNS), replace=False)
        self.columns = np.unique(np.concatenate([judged, [0, columns - 1]]))

    def weight(self, shape: tuple[int, ...], style: Style, scale: float) -> Weight:
        """The stack, with values of a size of `scale`."""
        dense: jax.Array = (floats(2, shape, style, negated=True) * scale).astype(jnp.bfloat16)
        return dense

    def matrix(self, columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Those columns' weights, on the host."""
        return wide(self.data["weight"][LAYER][columns])

    def bias(self, columns: NDArray[np.int64]) -> NDArray[np.float64] | float:
        """Those columns' biases, on the host."""
        return wide(self.data["bias"][LAYER][columns]) if "bias" in self.data else 0.0

    def arrange(self, rows: Sequence[int], bucket: int, place: str) -> Any:
        return selected(rows, bucket)

    def step(self, call: Call, data: Any, arranged: Any) -> tuple[tuple[jax.Array, ...], jax.Array]:
        x = placed(data["x"], arranged)
        layer, more = jnp.int32(LAYER), {"bias": data["bias"]} if "bias" in data else {}
        if self.gated:
            return (call(x, data["weight"], layer, arranged["count"], **more),), jnp.int32(0)
        parts = call(x, data["weight"], layer, arranged["count"], split=self.split, **more)
        return (jnp.moveaxis(parts, 1, 0),), jnp.int32(0)

    def judge(self, rows: Sequence[int], outputs: Sequence[NDArray[Any]]) -> list[Judged]:
        x = wide(self.data["x"][np.asarray(rows)])
        if self.gated:
            return [self._judge_gated(x, wide(outputs[0][:, self.columns]))]
        weight, bias = self.matrix(self.columns), self.bias(self.columns)
        runs = np.split(np.arange(x.shape[1]), self.split)
        wanted, scale = (
            np.stack([a[:, run] @ b[:, run].T for run in runs], 1)
            for a, b in ((x, weight), (np.abs(x), np.abs(weight)))
        )
        wanted[:, 0] += bias
        scale[:, 0] += np.abs(bias)
        return [Judged("parts", wide(outputs[0][:, :, self.columns]), wanted, scale, 4e-5, 4e-5)]

    def _judge_gated(self, x: NDArray[np.float64], found: NDArray[np.float64]) -> Judged:
        inner = self.data["weight"].shape[1] // 2
        gate, up = (self.matrix(self.columns + first) for first in (0, inner))
        g_bias, u_bias = (self.bias(self.columns + first) for first in (0, inner))
        g, u = x @ gate.T + g_bias, x @ up.T + u_bias
        g_size = np.abs(x) @ np.abs(gate).T + np.abs(g_bias)
        u_size = np.abs(x) @ np.abs(up).T + np.abs(u_bias)
        with np.errstate(over="ignore"):
            silu = g / (1 + np.exp(-g))
        return Judged("gated", found, silu * u, (np.abs(silu) + 2**-8 * g_size) * u_size + 1e-30, 8e-3, 1.6e-2)


def _problem(
    inner: int, columns: int, style: Style, *, gated: bool = False, small: bool = False, biased: bool = False
) -> Product:
    rows, buckets = (SMALL_ROWS, SMALL_BUCKETS) if small else (ROWS, BUCKETS)
    split = 2 if small else split_of(inner, columns)
    return Product(inner, columns, split, style, gated=gated, rows=rows, buckets=buckets, biased=biased)


_CASES = (
    ("Llama-3-8B", "down"),
    ("SmolLM2-135M", "down"),
    ("LFM2.5-1.2B", "qkv"),
    ("Qwen3-4B", "out"),
)

MATMUL = Subject(
    name="layer_matmul",
    public=layer_matmul,
    device=MODULE,
    cases={f"{spec} {part}": functools.partial(_problem, *SPECS[spec].products[part]) for spec, part in _CASES}
    | {"Llama-3-8B qkv, biased": functools.partial(_problem, *SPECS["Llama-3-8B"].products["qkv"], biased=True)},
    small=functools.partial(_problem, TINY.hidden, TINY.inner, small=True, biased=True),
    controls=(
        Control("the last tile of the inner axis skipped", "reference", (("grid=(steps,)", "grid=(steps - 1,)"),)),
        Control("every part reads the first run", "reference", (("(column, part * steps + i)", "(column, i)"),)),
        Control("another layer's matrix", "reference", (("w_ref.at[layer_ref[0]]", "w_ref.at[0]"),)),
        Control(
            "the walk begins where the row count says",
            "rows",
            (
                ("    spec = functools", "    turn = count_ref[0]\n    spec = functools"),
                ("part * steps + i)", "part * steps + (i + turn) % steps)"),
            ),
        ),
        Control("a bias in every part", "reference", (("part == 0", "part >= 0"),)),
        Control("another layer's bias", "reference", (("bias_ref[0].at[layer_ref[0]]", "bias_ref[0].at[0]"),)),
        Control("parts stored one too far", "bounds", (("out_ref.at[part, ", "out_ref.at[part + 1, "),)),
    ),
    variants=(
        (16, {"plan": Plan(Form.MMA, 16, 64, 64, 4)}),
        (32, {"plan": Plan(Form.MMA, 32, 64, 64, 4)}),
        (64, {"plan": Plan(Form.MMA, 64, 64, 64, 4)}),
        (64, {"plan": Plan(Form.ROWS, 64, 64, 64, 4)}),
        (64, {"plan": Plan(Form.WEIGHTS, 64, 64, 64, 3)}),
    ),
)

GLU = Subject(
    name="layer_glu",
    public=layer_glu,
    device=MODULE,
    cases={
        name: functools.partial(_problem, SPECS[name].hidden, SPECS[name].inner, gated=True)
        for name in ("Llama-3-8B", "SmolLM2-135M", "DSpark drafter")
    }
    | {
        "SmolLM2-135M, biased": functools.partial(
            _problem, SPECS["SmolLM2-135M"].hidden, SPECS["SmolLM2-135M"].inner, gated=True, biased=True
        )
    },
    small=functools.partial(_problem, TINY.hidden, TINY.inner, gated=True, small=True, biased=True),
    controls=(
        Control("gate and up swapped", "reference", (("silu_gate(*sums)", "silu_gate(*sums[::-1])"),)),
        Control("up read from the gate's rows", "reference", (("(column + offset, part", "(column, part"),)),
        Control("up's bias read from the gate's", "reference", (("number * offset", "0 * offset"),)),
        Control("no activation", "reference", (("gate / (1 + jnp.exp(-gate)) * up", "gate * up"),)),
        Control(
            "a negative gate let through", "stress", (("(1 + jnp.exp(-gate)) * up", "(1 + jnp.exp(-abs(gate))) * up"),)
        ),
        Control("stored one plane too far", "bounds", (("out_ref.at[part, ", "out_ref.at[part + 1, "),)),
    ),
    variants=((16, {"plan": Plan(Form.MMA, 16, 64, 64, 4)}), (64, {"plan": Plan(Form.ROWS, 64, 64, 64, 4)})),
)
