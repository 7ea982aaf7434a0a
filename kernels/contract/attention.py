"""Contract of window attention: streams at different depths, each with a second copy in other pages.

Rows see what stands before them and themselves, or all of a block that they belong to.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.kernels.contract.controls import Control
from tfjax.kernels.contract.heads import WIDE
from tfjax.kernels.contract.problem import (
    BUCKETS,
    ROWS,
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
from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles
from tfjax.kernels.rope_write import Pools
from tfjax.kernels.specs import SPECS, TINY, Spec
from tfjax.kernels.window_attention import spare_rows, window, window_attention

TILE_ROWS = {8: 4, 16: 16, 32: 8, 64: 64, 128: 16, 256: 128}
"""Tiles of each bucket, so that rows are cut differently."""

LAYERS, LAYER = 2, 1


class Streams(Problem):
    """Rows at the end of contexts. Page 0 and every place behind what a stream's last row sees hold NaN.

    Args:
        starts: positions that stand before each stream's rows.
        lengths: rows of each stream.
        whole: streams whose rows are a block, all of which each of them sees.
    """

    places = ("plain", "moved")

    def __init__(
        self,
        spec: Spec,
        style: Style,
        *,
        starts: tuple[int, ...],
        lengths: tuple[int, ...],
        buckets: tuple[int, ...],
        whole: Sequence[int] = (),
    ):
        self.spec, self.rows, self.buckets = spec, sum(lengths), buckets
        self.key = (spec.name, starts, lengths, *whole)
        ends = np.add(starts, lengths)
        self.lane = np.repeat(np.arange(len(starts)), lengths).astype(np.int32)
        position = np.concatenate([np.arange(start, end) for start, end in zip(starts, ends, strict=True)])
        self.position = np.where(np.isin(self.lane, whole), ends[self.lane] - 1, position).astype(np.int32)
        pages = -(-int(ends.max()) // PAGE_ROWS) + 1
        own = len(starts) * pages
        order = np.random.default_rng(0).permutation(2 * own) + 1
        self.table = order.reshape(2 * len(starts), pages).astype(np.int32)
        kv, size = spec.kv_heads, spec.head_dim
        context = (len(starts), pages * PAGE_ROWS, kv, size)
        keys = floats(2, context, Style.NORMAL if style is Style.CANCEL else style, dtype=jnp.bfloat16)
        values = floats(3, context, style, negated=True, dtype=jnp.bfloat16)
        if style is Style.SPREAD:
            keys = floats(2, context, Style.NORMAL, dtype=jnp.bfloat16)  # Wider scores would leave one key only.
        if style is Style.CANCEL:
            values = values.at[:, 1::2].set(-values[:, ::2])
        self.context = [np.asarray(x) for x in (keys, values)]
        self.pools = 2 * own + 1
        known = jnp.arange(context[1])[None, :, None, None] < jnp.asarray(ends)[:, None, None, None]
        self.data = {
            "q": floats(1, (self.rows, kv, spec.heads // kv, size), Style.NORMAL, dtype=jnp.bfloat16) * 2,
            "pools": Pools(*(self._paged(jnp.where(known, x, jnp.nan)) for x in (keys, values))),
            "table": jnp.asarray(self.table),
        }

    def _paged(self, context: jax.Array) -> jax.Array:
        lanes, _, kv, size = context.shape
        paged = context.reshape(lanes, -1, PAGE_ROWS, kv, size).swapaxes(2, 3).astype(jnp.bfloat16)
        pool = jnp.full((LAYERS * self.pools, kv, PAGE_ROWS, size), jnp.nan, jnp.bfloat16)
        return pool.at[LAYER * self.pools + self.table].set(jnp.concatenate([paged, paged]))

    def arrange(self, rows: Sequence[int], bucket: int, place: str) -> Any:
        tile_rows, at = TILE_ROWS[bucket], np.asarray(rows, int)
        position, starts, lanes, last = np.zeros((4, bucket), np.int32)
        position[: len(at)] = self.position[at]
        begins = [
            i for i in range(len(at)) if i == 0 or self.lane[at[i]] != self.lane[at[i - 1]] or at[i] != at[i - 1] + 1
        ]
        tiles = [
            (first, min(first + tile_rows, end))
            for begin, end in zip(begins, [*begins[1:], len(at)], strict=False)  # no row, no tile
            for first in range(begin, end, tile_rows)
        ]
        other = self.table.shape[0] // 2 if place == "moved" else 0
        for i, (first, end) in enumerate(tiles):
            starts[i], lanes[i], last[i] = first, self.lane[at[first]] + other, position[end - 1]
        return {
            **selected(rows, bucket),
            "position": position,
            "tiles": (np.array(len(tiles), np.int32), starts, lanes, last),
        }

    def step(self, call: Call, data: Any, arranged: Any) -> tuple[tuple[jax.Array, ...], jax.Array]:
        group, bucket = self.spec.heads // self.spec.kv_heads, len(arranged["position"])
        tiles = Tiles(*(jnp.asarray(x) for x in arranged["tiles"]))
        shared = window(
            jnp.asarray(arranged["position"]), tiles, data["table"], tile_rows=TILE_ROWS[bucket], group=group
        )
        q = jnp.pad(placed(data["q"], arranged), ((0, spare_rows(group)), *[(0, 0)] * 3), constant_values=jnp.nan)
        return (call(q.swapaxes(0, 1), data["pools"], shared, jnp.int32(LAYER * self.pools)),), jnp.int32(0)

    def judge(self, rows: Sequence[int], outputs: Sequence[NDArray[Any]]) -> list[Judged]:
        q = wide(self.data["q"])
        wanted, sizes = [], []
        for row in rows:
            end = self.position[row] + 1
            keys, values = (wide(x[self.lane[row], :end]) for x in self.context)
            score = np.einsum("kgh,tkh->kgt", q[row], keys) * self.spec.head_dim**-0.5
            weight = np.exp(score - score.max(-1, keepdims=True))
            weight /= weight.sum(-1, keepdims=True)
            wanted.append(np.einsum("kgt,tkh->kgh", weight, values).ravel())
            sizes.append(np.einsum("kgt,tkh->kgh", weight, np.abs(values)).ravel())
        return [Judged("attended", wide(outputs[0]), np.stack(wanted), np.stack(sizes), 8e-3, 1.6e-2)]


DEPTHS = (0, 1003, 1498)
FAR = (0, 65_000, 131_072 - ROWS // 3)
BLOCKS = (16, 1, 9, 13, 2, 16, 7, 11, 16, 5, 16, 16, 1)
"""Rows of blocks, as many as ROWS together."""

GROUPS = {group: Spec(f"groups of {group}", 0, 0, 2 * group, 2, 128, 0) for group in (1, 5, 7, 11, 16)}
"""No models: numbers of query heads to a key head that no model of `SPECS` has."""


def _problem(spec: Spec, style: Style, *, starts: tuple[int, ...] = DEPTHS) -> Streams:
    return Streams(spec, style, starts=starts, lengths=(ROWS // len(starts),) * len(starts), buckets=BUCKETS)


def _blocks(spec: Spec, style: Style) -> Streams:
    starts = tuple(int(start) for start in np.linspace(0, 1500, len(BLOCKS)))
    return Streams(spec, style, starts=starts, lengths=BLOCKS, buckets=BUCKETS, whole=range(len(BLOCKS)))


def _small(style: Style) -> Streams:
    spec = dataclasses.replace(TINY, head_dim=WIDE.head_dim)
    return Streams(spec, style, starts=(0, 62, 126), lengths=(3, 3, 3), buckets=(16,), whole=(2,))


ATTENTION = Subject(
    name="window_attention",
    public=window_attention,
    device="tfjax.kernels.gpu.window_attention",
    cases={
        **{name: functools.partial(_problem, SPECS[name]) for name in ("Llama-3-8B", "SmolLM2-135M", "LFM2.5-1.2B")},
        **{spec.name: functools.partial(_problem, spec) for spec in (WIDE, *GROUPS.values())},
        **{f"blocks of {spec.name}": functools.partial(_blocks, spec) for spec in (SPECS["DSpark drafter"], WIDE)},
        "131,072 keys": functools.partial(_problem, SPECS["lfm2-moe-code"], starts=FAR),
    },
    small=_small,
    controls=(
        Control(
            "the key after the last seen",
            "reference",
            (("score = jnp.where(place <= lax", "score = jnp.where(place - 1 <= lax"),),
        ),
        Control(
            "the last page skipped",
            "reference",
            (("lax.fori_loop(0, item.pages, one_page", "lax.fori_loop(0, jnp.maximum(item.pages - 1, 1), one_page"),),
        ),
        Control("a stale page", "reference", (("item.page + page] +", "item.page] +"),)),
        Control(
            "values behind the last position not cleared",
            "reference",
            (("pl.when(first + PAGE_ROWS > item.last + 1)", "pl.when(first < 0)"),),
        ),
        Control("chunks merged without their weight", "stress", (("chunk.mixed * each(grown)", "chunk.mixed * live"),)),
        Control(
            "all rows see what the block's last sees",
            "rows",
            (
                (
                    "score = jnp.where(place <= lax.broadcast_in_dim(seen, score.shape, (0,))",
                    "score = jnp.where(place <= item.last + place * 0",
                ),
            ),
        ),
        Control(
            "the first columns stored for all",
            "reference",
            (("found.mixed[:, columns]", "found.mixed[:, : columns.stop - column]"),),
        ),
        Control("another layer's pages", "bounds", (("item.page + page] + first_page_ref[0]", "item.page + page]"),)),
        Control(
            "rows stored one block too far",
            "bounds",
            (("pl.ds((item.start + row) * group, group)]", "pl.ds((item.start + row + 1) * group, group)]"),),
        ),
    ),
)
