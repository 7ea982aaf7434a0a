"""Contract of norm, rotation and page write."""

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
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.rope_write import HeadNorm, Heads, Places, Pools, Turns, rope_write, turns
from tfjax.kernels.specs import SPECS, TINY, Spec

LAYERS, LAYER, PAGES, SPLIT, THETA, SPARE = 2, 1, 7, 2, 10_000.0, 3
UNTOUCHED = -3.0


class HeadRows(Problem):
    """Rows that each have a place of their own in a page."""

    places = ("plain", "moved")

    def __init__(self, spec: Spec, style: Style, *, small: bool = False):
        self.rows = SMALL_ROWS if small else ROWS
        self.buckets = SMALL_BUCKETS if small else BUCKETS
        self.key = (spec.name, self.rows)
        self.heads = Heads(spec.heads, spec.kv_heads, spec.head_dim, spec.norm_after, 1e-6)
        self.normed = spec.normed
        position = np.random.default_rng(0).integers(0, 8192, self.rows).astype(np.int32)
        frequency = jnp.float32(THETA) ** -(jnp.arange(0, spec.head_dim, 2) / spec.head_dim)
        self.data = {
            "parts": floats(1, (self.rows, SPLIT, spec.qkv), style),
            "turned": turns(jnp.asarray(position), frequency.astype(jnp.float32)),
            "norm": HeadNorm(
                *(floats(key, (LAYERS, spec.head_dim), Style.POSITIVE, dtype=jnp.bfloat16) for key in (2, 3))
            ),
        }

    def arrange(self, rows: Sequence[int], bucket: int, place: str) -> Any:
        at = np.asarray(rows, int)
        if place == "moved":
            at = (PAGES - 1) * PAGE_ROWS - 1 - at
        page, slot = np.zeros((2, bucket), np.int32)  # What does not matter goes to the scratch page.
        page[: len(rows)], slot[: len(rows)] = 1 + at // PAGE_ROWS, at % PAGE_ROWS
        return {**selected(rows, bucket), "page": page, "slot": slot}

    def step(self, call: Call, data: Any, arranged: Any) -> tuple[tuple[jax.Array, ...], jax.Array]:
        parts = jnp.moveaxis(placed(data["parts"], arranged), 1, 0)
        turned = Turns(*(placed(x, arranged) for x in data["turned"]))
        shape = (LAYERS * PAGES, self.heads.kv_heads, PAGE_ROWS, self.heads.size)
        pools = Pools(*[jnp.full(shape, UNTOUCHED, jnp.bfloat16)] * 2)
        places = Places(arranged["page"], arranged["slot"], jnp.int32(LAYER * PAGES))
        norm = data["norm"] if self.normed else None
        q, pools = call(
            parts, turned, places, pools, jnp.int32(LAYER), arranged["count"], heads=self.heads, norm=norm, spare=SPARE
        )
        page = places.page + places.first_page
        written = [pool[page, :, places.slot] for pool in pools]
        live = jnp.arange(len(page)) < arranged["count"]
        owned = jnp.zeros((len(pools.keys), PAGE_ROWS), jnp.int32).at[page, places.slot].max(live.astype(jnp.int32)) > 0
        owned = owned.at[LAYER * PAGES].set(True)
        strayed = [jnp.sum(jnp.any(pool != UNTOUCHED, (1, 3)) & ~owned) for pool in pools]
        return (q.swapaxes(0, 1)[: len(page)], *written), strayed[0] + strayed[1]

    def judge(self, rows: Sequence[int], outputs: Sequence[NDArray[Any]]) -> list[Judged]:
        at = np.asarray(rows)
        parts = wide(self.data["parts"][at])
        heads, kv_heads, size = self.heads.heads, self.heads.kv_heads, self.heads.size
        flat, loose = (x.reshape(len(at), heads + 2 * kv_heads, size) for x in (parts.sum(1), np.abs(parts).sum(1)))
        q, k, v = np.split(flat, [heads, heads + kv_heads], 1)
        q_size, k_size, v_size = np.split(loose, [heads, heads + kv_heads], 1)
        group = (len(at), kv_heads, heads // kv_heads, size)
        q, q_size = self._prepared(q, q_size, 0, at)
        k, k_size = self._prepared(k, k_size, 1, at)
        found = [wide(x) for x in outputs]
        return [
            Judged("q", found[0], q.reshape(group), q_size.reshape(group), 6e-3, 1.2e-2),
            Judged("k", found[1], k, k_size, 6e-3, 1.2e-2),
            Judged("v", found[2], v, v_size, 3e-3, 6e-3),
        ]

    def _prepared(
        self, x: NDArray[np.float64], size: NDArray[np.float64], which: int, at: NDArray[Any]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Norm and rotation, and what their errors are held against."""
        weight = wide(self.data["norm"][which][LAYER])
        cos, sin = (wide(x[at])[:, None] for x in self.data["turned"])

        def norm(x: NDArray[Any], size: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
            spread = np.sqrt((x**2).mean(-1, keepdims=True) + self.heads.eps)
            return x / spread * weight, (size + np.abs(x)) / spread * weight

        def rotate(x: NDArray[Any], size: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
            low, high = np.split(x, 2, -1)
            low_size, high_size = np.split(size, 2, -1)
            turned = np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)
            return turned, np.concatenate([low_size + high_size] * 2, -1)

        steps = [rotate] if not self.normed else [rotate, norm] if self.heads.norm_after else [norm, rotate]
        for step in steps:
            x, size = step(x, size)
        return x, size


ROPE = Subject(
    name="rope_write",
    public=rope_write,
    device="tfjax.kernels.gpu.rope_write",
    cases={
        name: functools.partial(HeadRows, SPECS[name])
        for name in ("Llama-3-8B", "SmolLM2-135M", "LFM2.5-1.2B", "DSpark drafter")
    },
    small=functools.partial(HeadRows, TINY, small=True),
    controls=(
        Control(
            "the last part dropped", "reference", (("range(parts_ref.shape[0])", "range(parts_ref.shape[0] - 1)"),)
        ),
        Control("turned the other way", "reference", (("low * cos - high * sin", "low * cos + high * sin"),)),
        Control(
            "keys normed by the queries' weight",
            "reference",
            (("heads.heads + first, k_norm_ref)", "heads.heads + first, q_norm_ref)"),),
        ),
        Control(
            "position of the row before", "reference", (("cos_ref.at[row]", "cos_ref.at[jnp.maximum(row - 1, 0)]"),)
        ),
        Control("another layer's pages", "bounds", (("page_ref[row] + first_page_ref[0]", "page_ref[row]"),)),
        Control("slot of a neighbour", "bounds", (("slot_ref[row]\n", "slot_ref[row] ^ 1\n"),)),
        Control(
            "rows that do not count are stored",
            "bounds",
            (
                ("(row < count_ref[0]) & (unit >= q_units)", "unit >= q_units"),
                ("page_ref[row] +", "jnp.maximum(page_ref[row], 1) +"),
            ),
        ),
        Control("angles by the place in the forward", "rows", (("sin_ref.at[row]", "sin_ref.at[0]"),)),
    ),
)
