"""Contract of norm, rotation and page write."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
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

WIDE = Spec("Gemma-2-2B", 2304, 9216, 8, 4, 256, 256000, normed=True)
"""Heads of 256, which no model of `SPECS` has; its norms are there for the kernel's sake."""


@dataclass(frozen=True, slots=True)
class Form:
    """What is done with columns.

    Attributes:
        queries: they are there; else the columns are keys and values alone.
    """

    norm_after: bool = False
    interleaved: bool = False
    queries: bool = True

    def heads(self, spec: Spec) -> Heads:
        queries = spec.heads if self.queries else 0
        return Heads(queries, spec.kv_heads, spec.head_dim, self.norm_after, 1e-6, self.interleaved)


class HeadRows(Problem):
    """Rows that each have a place of their own in a page, but for some that are not stored.

    Args:
        forms: what is done with the same columns, one form after another.
    """

    places = ("plain", "moved")

    def __init__(self, spec: Spec, style: Style, forms: Sequence[Form] = (), *, small: bool = False):
        self.rows = SMALL_ROWS if small else ROWS
        self.buckets = SMALL_BUCKETS if small else BUCKETS
        self.spec, self.normed = spec, spec.normed
        self.forms = [form.heads(spec) for form in forms or (Form(spec.norm_after),)]
        self.key = (spec.name, self.rows, *forms)
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
        row = np.asarray(rows, int)
        at = (PAGES - 1) * PAGE_ROWS - 1 - row if place == "moved" else row
        page, slot = np.zeros((2, bucket), np.int32)  # What does not matter goes to the scratch page.
        page[: len(rows)], slot[: len(rows)] = np.where(_stored(row), 1 + at // PAGE_ROWS, -1), at % PAGE_ROWS
        return {**selected(rows, bucket), "page": page, "slot": slot}

    def step(self, call: Call, data: Any, arranged: Any) -> tuple[tuple[jax.Array, ...], jax.Array]:
        parts = jnp.moveaxis(placed(data["parts"], arranged), 1, 0)
        turned = Turns(*(placed(x, arranged) for x in data["turned"]))
        places = Places(arranged["page"], arranged["slot"], jnp.int32(LAYER * PAGES))
        norm = data["norm"] if self.normed else None
        found: list[jax.Array] = []
        strays = jnp.int32(0)
        for heads in self.forms:
            shape = (LAYERS * PAGES, heads.kv_heads, PAGE_ROWS, heads.size)
            columns = parts[..., -(heads.heads + 2 * heads.kv_heads) * heads.size :]
            pools = Pools(*[jnp.full(shape, UNTOUCHED, jnp.bfloat16)] * 2)
            numbers = jnp.int32(LAYER), arranged["count"]
            q, pools = call(columns, turned, places, pools, *numbers, heads=heads, norm=norm, spare=SPARE)
            page = places.page + places.first_page
            found += [q.swapaxes(0, 1)[: len(page)]] if heads.heads else []
            found += [pool[page, :, places.slot] for pool in pools]
            strays += _strays(pools, places, arranged["count"])
        return tuple(found), strays

    def judge(self, rows: Sequence[int], outputs: Sequence[NDArray[Any]]) -> list[Judged]:
        found, judged = [wide(x) for x in outputs], []
        for heads in self.forms:
            count = 3 if heads.heads else 2
            judged += self._judge(heads, np.asarray(rows), found[:count])
            found = found[count:]
        return judged

    def _judge(self, heads: Heads, at: NDArray[Any], found: Sequence[NDArray[Any]]) -> list[Judged]:
        parts = wide(self.data["parts"][at])[..., -(heads.heads + 2 * heads.kv_heads) * heads.size :]
        total = (len(at), heads.heads + 2 * heads.kv_heads, heads.size)
        flat, loose = (x.reshape(total) for x in (parts.sum(1), np.abs(parts).sum(1)))
        q, k, v = np.split(flat, [heads.heads, heads.heads + heads.kv_heads], 1)
        q_size, k_size, v_size = np.split(loose, [heads.heads, heads.heads + heads.kv_heads], 1)
        k, k_size = self._prepared(heads, k, k_size, 1, at)
        k, v = (np.where(_stored(at)[:, None, None], x, UNTOUCHED) for x in (k, v))
        name = f"{'pairs' if heads.interleaved else 'halves'}{' of the context' * (not heads.heads)}"
        judged = [
            Judged(f"k by {name}", found[-2], k, k_size, 6e-3, 1.2e-2),
            Judged(f"v by {name}", found[-1], v, v_size, 3e-3, 6e-3),
        ]
        if heads.heads:
            group = (len(at), heads.kv_heads, heads.group, heads.size)
            q, q_size = (x.reshape(group) for x in self._prepared(heads, q, q_size, 0, at))
            judged.append(Judged(f"q by {name}", found[0], q, q_size, 6e-3, 1.2e-2))
        return judged

    def _prepared(
        self, heads: Heads, x: NDArray[np.float64], size: NDArray[np.float64], which: int, at: NDArray[Any]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Norm and rotation, and what their errors are held against."""
        weight = wide(self.data["norm"][which][LAYER])
        cos, sin = (wide(x[at])[:, None] for x in self.data["turned"])

        def halved(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
            half = heads.size // 2
            return (x[..., ::2], x[..., 1::2]) if heads.interleaved else (x[..., :half], x[..., half:])

        def joined(low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
            return np.stack([low, high], -1).reshape(x.shape) if heads.interleaved else np.concatenate([low, high], -1)

        def norm(x: NDArray[Any], size: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
            spread = np.sqrt((x**2).mean(-1, keepdims=True) + heads.eps)
            return x / spread * weight, (size + np.abs(x)) / spread * weight

        def rotate(x: NDArray[Any], size: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
            (low, high), (low_size, high_size) = halved(x), halved(size)
            turned = joined(low * cos - high * sin, high * cos + low * sin)
            return turned, joined(low_size + high_size, low_size + high_size)

        steps = [rotate] if not self.normed else [rotate, norm] if heads.norm_after else [norm, rotate]
        for step in steps:
            x, size = step(x, size)
        return x, size


def _strays(pools: Pools, places: Places, count: jax.Array) -> jax.Array:
    """Places that changed although no row that counts and is stored owns them. The scratch page is anybody's."""
    page = places.page + places.first_page
    live = (jnp.arange(len(page)) < count) & (places.page >= 0)
    owned = jnp.zeros((len(pools.keys), PAGE_ROWS), jnp.int32).at[page, places.slot].max(live.astype(jnp.int32)) > 0
    owned = owned.at[LAYER * PAGES].set(True)
    keys, values = (jnp.sum(jnp.any(pool != UNTOUCHED, (1, 3)) & ~owned) for pool in pools)
    return (keys + values).astype(jnp.int32)


def _stored(row: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows have a page."""
    stored: NDArray[np.bool_] = row % 7 != 3
    return stored


CONTEXT = Form(interleaved=True, queries=False)
EVERY_FORM = (Form(), Form(interleaved=True), Form(norm_after=True, interleaved=True), CONTEXT)

ROPE = Subject(
    name="rope_write",
    public=rope_write,
    device="tfjax.kernels.gpu.rope_write",
    cases={
        **{
            name: functools.partial(HeadRows, SPECS[name])
            for name in ("Llama-3-8B", "SmolLM2-135M", "LFM2.5-1.2B", "DSpark drafter")
        },
        "DSpark drafter, pairs": functools.partial(HeadRows, SPECS["DSpark drafter"], forms=EVERY_FORM[1:]),
        "Llama-3-8B, pairs": functools.partial(HeadRows, SPECS["Llama-3-8B"], forms=EVERY_FORM[1:]),
        WIDE.name: functools.partial(HeadRows, WIDE, forms=EVERY_FORM),
    },
    small=functools.partial(HeadRows, TINY, forms=(EVERY_FORM[0], *EVERY_FORM[2:]), small=True),
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
                ("(row < count_ref[0]) & (unit >= q_units)", "(unit >= q_units)"),
                ("page_ref[row] +", "jnp.maximum(page_ref[row], 1) +"),
            ),
        ),
        Control(
            "rows without a page are stored",
            "bounds",
            (("(unit >= q_units) & (page_ref[row] >= 0)", "(unit >= q_units)"),),
        ),
        Control("pairs the wrong way round", "reference", (("pl.ds(which, 1)", "pl.ds(1 - which, 1)"),)),
        Control(
            "pairs normed by the weights of halves",
            "reference",
            (
                (
                    "low, high = alone._halves((read[0], read[1]), layout)",
                    "low, high = alone._halves((read[0], read[0]), layout)",
                ),
            ),
        ),
        Control("angles by the place in the forward", "rows", (("sin_ref.at[row]", "sin_ref.at[0]"),)),
    ),
)
