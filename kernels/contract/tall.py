"""Contracts of the products of many rows.

Rows that stand alone go through the forms for few rows, so that the gate of rows compares the two.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tfjax.kernels.contract.controls import Control
from tfjax.kernels.contract.problem import BUCKETS, Call, Judged, Style, Subject, wide
from tfjax.kernels.contract.products import Product
from tfjax.kernels.gpu.plans import TALLEST_ROWS, Form, Plan, split_of
from tfjax.kernels.specs import SPECS, TINY
from tfjax.kernels.tall_matmul import tall_glu, tall_matmul

MODULE = "tfjax.kernels.gpu.tall_matmul"

TALL_ROWS = TALLEST_ROWS + 44
"""Different rows of a problem: more than one tile's."""


FEWER_ROWS = TALLEST_ROWS // 2 + 12
"""The same for the interpreter: rows of every warpgroup and of both blocks."""


class TallProduct(Product):
    """Rows by one matrix, their parts added up, or gated."""

    def step(self, call: Call, data: Any, arranged: Any) -> tuple[tuple[jax.Array, ...], jax.Array]:
        def one_part(*arguments: Any, **more: Any) -> jax.Array:
            out: jax.Array = call(*arguments, **more)
            return out if self.gated else out[None]

        return super().step(one_part, data, arranged)

    def judge(self, rows: Sequence[int], outputs: Sequence[NDArray[Any]]) -> list[Judged]:
        if self.gated:
            return super().judge(rows, outputs)
        x, weight, bias = wide(self.data["x"][np.asarray(rows)]), self.matrix(self.columns), self.bias(self.columns)
        scale = np.abs(x) @ np.abs(weight).T + np.abs(bias)
        return [Judged("sums", wide(outputs[0][:, 0, self.columns]), x @ weight.T + bias, scale, 4e-5, 4e-5)]


def _problem(
    inner: int, columns: int, style: Style, *, gated: bool = False, small: bool = False, biased: bool = False
) -> TallProduct:
    rows, buckets = (FEWER_ROWS, (8, TALLEST_ROWS)) if small else (TALL_ROWS, (*BUCKETS, 2 * TALLEST_ROWS))
    split = 2 if small else split_of(inner, columns)
    return TallProduct(inner, columns, split, style, gated=gated, rows=rows, buckets=buckets, biased=biased)


# A fault must not keep a warpgroup waiting for a tile: that would hang the device.
_READS = (
    Control("another layer's matrix", "reference", (("w_ref.at[layer_ref[0]]", "w_ref.at[0]"),)),
    Control(
        "both warpgroups take the first rows",
        "rows",
        (("own = pl.ds(warpgroup * WARPGROUP_ROWS", "own = pl.ds(0 * WARPGROUP_ROWS"),),
    ),
    Control(
        "the inner axis walked backwards",
        "rows",
        (("pl.ds(number % sizes.all_steps *", "pl.ds((sizes.all_steps - 1 - number % sizes.all_steps) *"),),
    ),
    Control("another layer's bias", "reference", (("bias_ref[0].at[layer_ref[0]]", "bias_ref[0].at[0]"),)),
    Control("stored one row too far", "bounds", (("rows = pl.ds(row + ", "rows = pl.ds(row + 1 + "),)),
)

TALL_MATMUL = Subject(
    name="tall_matmul",
    public=tall_matmul,
    device=MODULE,
    cases={
        "Llama-3-8B down": functools.partial(_problem, *SPECS["Llama-3-8B"].products["down"]),
        "Llama-3-8B qkv, biased": functools.partial(_problem, *SPECS["Llama-3-8B"].products["qkv"], biased=True),
        **{
            f"SmolLM2-135M {part}": functools.partial(_problem, *SPECS["SmolLM2-135M"].products[part])
            for part in ("qkv", "out", "down")
        },
    },
    small=functools.partial(_problem, TINY.hidden, TINY.inner, small=True, biased=True),
    controls=(
        *_READS,
        Control("the first part forgotten", "reference", (("if part else found", "if part > 1 else found"),)),
        Control("a bias in every part", "reference", (("if part == 0 and bias_ref", "if bias_ref"),)),
    ),
    variants=((512, {"plan": Plan(Form.TALL, TALLEST_ROWS, 64, 64, 3)}),),
)

TALL_GLU = Subject(
    name="tall_glu",
    public=tall_glu,
    device=MODULE,
    cases={
        name: functools.partial(_problem, SPECS[name].hidden, SPECS[name].inner, gated=True)
        for name in ("Llama-3-8B", "SmolLM2-135M")
    }
    | {
        "SmolLM2-135M, biased": functools.partial(
            _problem, SPECS["SmolLM2-135M"].hidden, SPECS["SmolLM2-135M"].inner, gated=True, biased=True
        )
    },
    small=functools.partial(_problem, TINY.hidden, TINY.inner, gated=True, small=True, biased=True),
    controls=(
        *_READS,
        Control("gate and up swapped", "reference", (("silu_gate(*sums)", "silu_gate(*sums[::-1])"),)),
        Control(
            "up read from the gate's rows", "reference", (("column + matrix * sizes.tiles) * plan", "column) * plan"),)
        ),
        Control(
            "up's bias read from the gate's",
            "reference",
            (("column + matrix * sizes.tiles) * columns", "column) * columns"),),
        ),
    ),
    variants=((512, {"plan": Plan(Form.TALL, TALLEST_ROWS, 64, 64, 3)}),),
)
