"""Contracts of the products of rows that are grouped by expert."""

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
from tfjax.kernels.gpu.plans import Form, Plan
from tfjax.kernels.grouped_matmul import (
    Tiles,
    WindowTiles,
    expert_tiles,
    gathered,
    grouped_glu,
    grouped_matmul,
)
from tfjax.kernels.specs import SPECS, TINY, Spec

LAYERS, LAYER = 2, 1
MOST_EXPERTS = 8
"""Experts of a problem; more would only take memory."""

JUDGED_COLUMNS = 96
TILE_ROWS = {8: 8, 16: None, 32: None, 64: None, 128: 32, 256: 64}
"""Rows of a tile in each bucket, so that rows are grouped differently; None where a tile is the whole window."""

MODULE = "tfjax.kernels.gpu.grouped_matmul"


class Grouped(Problem):
    """Rows by the matrices of the experts that each chose."""

    places = ("plain",)

    def __init__(self, spec: Spec, style: Style, *, gated: bool, small: bool = False):
        self.rows = SMALL_ROWS if small else ROWS
        self.buckets = SMALL_BUCKETS if small else BUCKETS
        self.key, self.gated = (spec.name, gated, self.rows), gated
        self.experts = min(spec.experts, MOST_EXPERTS)
        inner, columns = (spec.hidden, spec.expert_inner) if gated else (spec.expert_inner, spec.hidden)
        self.size = columns
        random = np.random.default_rng(0)
        choice = np.stack([random.permutation(self.experts)[: spec.picked] for _ in range(self.rows)])
        self.choice = choice.astype(np.int32)
        shape = (LAYERS * self.experts, columns * (2 if gated else 1), inner)
        # Gates of a size where neither side of the nonlinearity hides what comes in.
        scale = inner**-0.5 if gated and style is not Style.POSITIVE else 0.5 / inner if gated else 1.0
        self.data = {
            "x": floats(1, (self.rows, inner), style, dtype=jnp.bfloat16),
            "weight": (floats(2, shape, style, negated=True) * scale).astype(jnp.bfloat16),
        }
        judged = random.choice(columns, min(columns, JUDGED_COLUMNS), replace=False)
        self.columns = np.unique(np.concatenate([judged, [0, columns - 1]]))

    def arrange(self, rows: Sequence[int], bucket: int, place: str) -> Any:
        arranged = selected(rows, bucket)
        # Rows that do not count may have chosen anything.
        return {**arranged, "choice": self.choice[arranged["select"]]}

    def step(self, call: Call, data: Any, arranged: Any) -> tuple[tuple[jax.Array, ...], jax.Array]:
        choice, count = jnp.asarray(arranged["choice"]), arranged["count"]
        tile_rows = TILE_ROWS[len(choice)]
        x = placed(data["x"], arranged)
        tiles: Tiles
        if tile_rows is None:
            tiles, places = WindowTiles(choice, jnp.asarray(count), self.experts), len(choice) * self.experts
            # The first product of a layer reads the rows themselves, the second what the first made of them.
            x = x if self.gated else jnp.tile(x, (self.experts, 1))
        else:
            tiles = expert_tiles(choice, count, experts=self.experts, tile_rows=tile_rows)
            x, places = gathered(x, tiles), len(tiles.source)
        if len(x) == places:
            # Places of no row are NaN, and so is what is read behind the rows that count.
            taken = jnp.zeros(places, bool).at[tiles.place.reshape(-1)].set(True, mode="drop")
            x = jnp.where(taken[:, None], x, jnp.nan)
        out = call(x, data["weight"], jnp.int32(LAYER * self.experts), tiles)
        return (out[tiles.place],), jnp.int32(0)

    def judge(self, rows: Sequence[int], outputs: Sequence[NDArray[Any]]) -> list[Judged]:
        at = np.asarray(rows)
        x, first = wide(self.data["x"][at]), LAYER * self.experts
        matrix = first + self.choice[at]

        def products(offset: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            """Of every row and choice, and the sizes of what was added."""
            wanted, size = np.zeros((2, *matrix.shape, len(self.columns)))
            for number in np.unique(matrix):
                weight = wide(self.data["weight"][int(number)][self.columns + offset])
                row, rank = np.nonzero(matrix == number)
                wanted[row, rank] = x[row] @ weight.T
                size[row, rank] = np.abs(x[row]) @ np.abs(weight).T
            return wanted, size

        found = wide(outputs[0][:, :, self.columns])
        wanted, size = products(0)
        if not self.gated:
            return [Judged("product", found, wanted, size, 4e-5, 4e-5)]
        up, up_size = products(self.size)
        with np.errstate(over="ignore"):
            silu = wanted / (1 + np.exp(-wanted))
        return [Judged("gated", found, silu * up, (np.abs(silu) + 2**-8 * size) * up_size + 1e-30, 8e-3, 1.6e-2)]


_VARIANTS = (
    (16, {"plan": Plan(Form.MMA, 16, 64, 64, 4)}),
    (64, {"plan": Plan(Form.WEIGHTS, 64, 64, 32, 3)}),
    (128, {"plan": Plan(Form.WEIGHTS, 32, 64, 32, 3)}),
)

_NAMES = ("LFM2.5-24B-A2B", "lfm2-moe-code")

GROUPED = Subject(
    name="grouped_matmul",
    public=grouped_matmul,
    device=MODULE,
    cases={name: functools.partial(Grouped, SPECS[name], gated=False) for name in _NAMES},
    small=functools.partial(Grouped, TINY, gated=False, small=True),
    controls=(
        Control("the expert beside", "reference", (("+ jnp.maximum(expert, 0)", "+ (jnp.maximum(expert, 0) ^ 1)"),)),
        Control("another layer's experts", "reference", (("first_ref[0] + jnp", "jnp"),)),
        Control("the last tile of the inner axis skipped", "reference", (("grid=(steps,)", "grid=(steps - 1,)"),)),
        Control("the first tile's expert for all", "rows", (("expert = which_ref[tile]", "expert = which_ref[0]"),)),
        Control(
            "the walk begins where the tile stands",
            "rows",
            (
                ("lambda i: (own, i)", "lambda i: (own, (i + tile) % steps)"),
                ("(column, i)", "(column, (i + tile) % steps)"),
            ),
        ),
        Control("tiles of odd experts left out", "bounds", (("pl.when(live)", "pl.when(live & ((expert & 1) == 0))"),)),
        Control("stored one row too far", "bounds", (("pl.ds(tile * plan.rows,", "pl.ds(tile * plan.rows + 1,"),)),
    ),
    variants=_VARIANTS,
)

GROUPED_GLU = Subject(
    name="grouped_glu",
    public=grouped_glu,
    device=MODULE,
    cases={name: functools.partial(Grouped, SPECS[name], gated=True) for name in _NAMES},
    small=functools.partial(Grouped, TINY, gated=True, small=True),
    controls=(
        Control("the expert beside", "reference", (("+ jnp.maximum(expert, 0)", "+ (jnp.maximum(expert, 0) ^ 1)"),)),
        Control("gate and up swapped", "reference", (("silu_gate(*sums)", "silu_gate(*sums[::-1])"),)),
        Control("the rows beside a window", "reference", (("0 if alike else tile", "tile"),)),
        Control("up read from the gate's rows", "reference", (("(column + offset, i)", "(column, i)"),)),
        Control("the first tile's expert for all", "rows", (("expert = which_ref[tile]", "expert = which_ref[0]"),)),
        Control("stored one row too far", "bounds", (("pl.ds(tile * plan.rows,", "pl.ds(tile * plan.rows + 1,"),)),
    ),
    variants=_VARIANTS,
)
