"""Contracts of the two kernels around the experts: the choice, and the sum of what the chosen made."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.kernels.choose_experts import ChoiceRule, choose_experts
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
from tfjax.kernels.expert_sum import expert_sum
from tfjax.kernels.grouped_matmul import WindowTiles, tiles_of
from tfjax.kernels.specs import SPECS, TINY, Spec

LAYERS, LAYER, SPLIT, EPS = 2, 1, 2, 1e-6
COLUMNS = 64
"""Of routers; those behind the experts are padding and hold what would win."""

LARGEST = 4.0
"""Logits of a size where sigmoids still differ."""

_NAMES = ("LFM2.5-24B-A2B", "lfm2-moe-code")


class Choice(Problem):
    """Rows' scores, of which the kernel takes the largest. Judged by what was chosen, not by its number."""

    places = ("plain",)

    def __init__(self, spec: Spec, style: Style, *, small: bool = False):
        self.rows = SMALL_ROWS if small else ROWS
        self.buckets = SMALL_BUCKETS if small else BUCKETS
        self.key = (spec.name, self.rows)
        self.rule = ChoiceRule(spec.experts, spec.picked, normalised=True, scale=1.5, eps=EPS)
        parts = floats(1, (self.rows, COLUMNS, SPLIT), style)
        if style is Style.CANCEL:
            parts = parts.at[..., 1].set(-parts[..., 0] * (1 + 2.0**-12))
        parts = parts * (LARGEST / jnp.max(jnp.abs(parts)))
        bias = floats(2, (COLUMNS,), Style.NORMAL)
        padded = jnp.arange(COLUMNS) >= spec.experts
        self.data = {
            "parts": jnp.moveaxis(jnp.where(padded[:, None], 2 * LARGEST, parts), 2, 1),
            "bias": jnp.full((LAYERS, COLUMNS), jnp.nan).at[LAYER].set(jnp.where(padded, 2 * LARGEST, bias)),
        }

    def arrange(self, rows: Sequence[int], bucket: int, place: str) -> Any:
        return selected(rows, bucket)

    def step(self, call: Call, data: Any, arranged: Any) -> tuple[tuple[jax.Array, ...], jax.Array]:
        parts = jnp.moveaxis(placed(data["parts"], arranged), 1, 0)
        chosen, weight = call(parts, data["bias"], jnp.int32(LAYER), jnp.asarray(arranged["count"]), rule=self.rule)
        exists = (chosen >= 0) & (chosen < self.rule.experts)
        own = slice(0, self.rule.picked)
        return (jnp.where(exists, chosen.astype(jnp.float32), jnp.nan)[:, own], weight[:, own]), jnp.int32(0)

    def judge(self, rows: Sequence[int], outputs: Sequence[NDArray[Any]]) -> list[Judged]:
        at = np.arange(len(outputs[0])), np.asarray(rows)
        logits = wide(self.data["parts"])[at[1], :, : self.rule.experts].sum(1)
        score = 1 / (1 + np.exp(-logits))
        ranked = score + wide(self.data["bias"])[LAYER, : self.rule.experts]
        wanted = -np.sort(-ranked, axis=1)[:, : self.rule.picked]
        named = np.isfinite(outputs[0])
        chosen = np.where(named, outputs[0], 0).astype(int)
        found = np.where(named, np.take_along_axis(ranked, chosen, 1), np.nan)
        own = np.take_along_axis(score, chosen, 1)
        weight = own / (own.sum(1, keepdims=True) + EPS) * self.rule.scale
        return [
            Judged("chosen", found, wanted, np.ones_like(wanted), 4e-6, 1e-5),
            Judged("weights", wide(outputs[1]), weight, np.ones_like(weight), 4e-6, 1e-5),
        ]


class ExpertSum(Problem):
    """What the experts of each row made, in the places of the layout that a window of so many rows takes."""

    places = ("plain",)

    def __init__(self, spec: Spec, style: Style, *, small: bool = False):
        self.rows = SMALL_ROWS if small else ROWS
        self.buckets = SMALL_BUCKETS if small else BUCKETS
        self.key = (spec.name, self.rows)
        self.experts, self.picked = min(spec.experts, 8), spec.picked
        size, random = spec.hidden, np.random.default_rng(0)
        choice = np.stack([random.permutation(self.experts)[: spec.picked] for _ in range(self.rows)])
        self.choice = choice.astype(np.int32)
        made = floats(1, (self.rows, size, self.picked), style)
        factor = jnp.abs(floats(2, (self.rows, self.picked), Style.NORMAL)) + 0.25
        if style is Style.CANCEL:
            factor = jnp.full_like(factor, 0.5)
            made = made.at[..., 1].set(-made[..., 0] * (1 + 2.0**-12))
        self.data = {
            "made": jnp.moveaxis(made, 2, 1),
            "factor": factor,
            "x": floats(3, (self.rows, size), style, dtype=jnp.bfloat16),
            "weight": floats(4, (LAYERS, size), Style.POSITIVE, dtype=jnp.bfloat16),
        }

    def arrange(self, rows: Sequence[int], bucket: int, place: str) -> Any:
        arranged = selected(rows, bucket)
        return {**arranged, "choice": self.choice[arranged["select"]]}

    def step(self, call: Call, data: Any, arranged: Any) -> tuple[tuple[jax.Array, ...], jax.Array]:
        choice, count = jnp.asarray(arranged["choice"]), jnp.asarray(arranged["count"])
        tiles = tiles_of(choice, count, experts=self.experts, picked=self.picked)
        made, factor, x = (placed(data[name], arranged) for name in ("made", "factor", "x"))
        places = len(choice) * self.experts if isinstance(tiles, WindowTiles) else len(tiles.source)
        outputs = jnp.full((places, x.shape[1]), jnp.nan, jnp.float32)
        outputs = outputs.at[tiles.place.reshape(-1)].set(made.reshape(-1, x.shape[1]), mode="drop")
        done = call(outputs, tiles, factor, x, data["weight"], jnp.int32(LAYER), count, picked=self.picked, eps=EPS)
        return tuple(done), jnp.int32(0)

    def judge(self, rows: Sequence[int], outputs: Sequence[NDArray[Any]]) -> list[Judged]:
        at = np.asarray(rows)
        x, weight = wide(self.data["x"][at]), wide(self.data["weight"][LAYER])
        parts = wide(self.data["made"][at]) * wide(self.data["factor"][at])[:, :, None]
        summed, size = x + parts.sum(1), np.abs(x) + np.abs(parts).sum(1)
        spread = np.sqrt((summed**2).mean(-1, keepdims=True) + EPS)
        normed, norm_size = summed / spread * weight, (size + np.abs(summed)) / spread * weight
        return [
            Judged("sum", wide(outputs[0]), summed, size, 3e-3, 6e-3),
            Judged("norm", wide(outputs[1]), normed, norm_size, 6e-3, 1.2e-2),
        ]


CHOICE = Subject(
    name="choose_experts",
    public=choose_experts,
    device="tfjax.kernels.gpu.choose_experts",
    cases={name: functools.partial(Choice, SPECS[name]) for name in _NAMES},
    small=functools.partial(Choice, TINY, small=True),
    controls=(
        Control("another layer's bias", "reference", (("bias_ref.at[layer_ref[0]]", "bias_ref.at[0]"),)),
        Control(
            "the bias in the weights", "reference", (("jnp.where(own, score, 0.0)", "jnp.where(own, ranked, 0.0)"),)
        ),
        Control("padding takes part", "reference", (("place < rule.experts", "place < columns"),)),
        Control("the best chosen again", "reference", (("jnp.where(own, -jnp.inf, ranked)", "ranked"),)),
        Control("weights not normalised", "reference", (("weight / total if", "weight if"),)),
        Control("a part left out", "reference", (("range(parts_ref.shape[0])", "range(1)"),)),
        Control("the window's first row for all", "rows", (("parts_ref.at[part, row]", "parts_ref.at[part, 0]"),)),
        Control("stored one row too far", "bounds", (("weight_ref.at[row]", "weight_ref.at[row + 1]"),)),
    ),
)

EXPERT_SUM = Subject(
    name="expert_sum",
    public=expert_sum,
    device="tfjax.kernels.gpu.expert_sum",
    cases={name: functools.partial(ExpertSum, SPECS[name]) for name in _NAMES},
    small=functools.partial(ExpertSum, TINY, small=True),
    controls=(
        Control("the first rank's weight for all", "reference", (("factor_ref[row, rank]", "factor_ref[row, 0]"),)),
        Control("the first rank's expert for all", "reference", (("place_ref[row, rank]", "place_ref[row, 0]"),)),
        Control("the expert's first row for all", "rows", (("x_ref.shape[0] + row if", "x_ref.shape[0] if"),)),
        Control("another layer's norm", "reference", (("weight_ref.at[layer_ref[0]]", "weight_ref.at[0]"),)),
        Control("the residual missing", "reference", (("read(x_ref.at[row]).astype(jnp.float32) + total", "total"),)),
        Control("stored one row too far", "bounds", (("norm_ref.at[row]", "norm_ref.at[row + 1]"),)),
    ),
)
