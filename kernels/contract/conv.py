"""Contract of the short convolution's step: windows of three streams, each run of rows in a lane of its own."""

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
from tfjax.kernels.conv_step import ConvPlaces, ConvState, conv_step
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.short_conv import RING
from tfjax.kernels.specs import SPECS, TINY, Spec

LAYERS, LAYER, SPLIT, STREAMS, PAGES = 2, 1, 2, 3, 3


class ConvRows(Problem):
    """Rows of streams of which one ends where a page and the ring do, one goes on there, and one begins.

    Of the state, only what the rows may read is anything but NaN.
    """

    places = ("plain", "moved")

    def __init__(self, spec: Spec, style: Style, *, small: bool = False):
        self.rows = SMALL_ROWS if small else ROWS
        self.buckets = SMALL_BUCKETS if small else BUCKETS
        self.key = (spec.hidden, spec.taps, self.rows)
        self.kept = spec.taps - 1
        self.each = self.rows // STREAMS
        self.start = np.array([RING - self.each, RING, 0], np.int32)
        size = spec.hidden
        parts = floats(1, (self.rows, 3 * size, SPLIT), Style.NORMAL if style is Style.CANCEL else style)
        if style is Style.CANCEL:  # The parts nearly cancel.
            parts = parts.at[..., 1].set(-parts[..., 0] * (1 + 2.0**-8))
        parts = jnp.moveaxis(parts, 2, 1)
        before, _, x = jnp.split((parts[:, 0] + parts[:, 1]).astype(jnp.bfloat16).astype(jnp.float32), 3, -1)
        made = jax.lax.reduce_precision(before * x, 8, 7).reshape(STREAMS, self.each, size)
        earlier = floats(2, (STREAMS, self.kept, size), style)
        self.data = {
            "parts": parts,
            "taps": floats(3, (LAYERS, spec.taps, size), style, dtype=jnp.bfloat16),
            # Inputs at start - kept and further, of every stream.
            "inputs": jnp.concatenate([earlier, made], 1).astype(jnp.bfloat16),
        }

    def arrange(self, rows: Sequence[int], bucket: int, place: str) -> Any:
        at = np.asarray(rows, int)
        stream, within = at // self.each, at % self.each
        begins = np.ones(len(at), bool)
        begins[1:] = (stream[1:] != stream[:-1]) | (at[1:] != at[:-1] + 1)
        moved = place == "moved"
        lanes = np.arange(bucket)[::-1] if moved else np.arange(bucket)
        lane, position = np.full(bucket, bucket, np.int32), np.zeros(bucket, np.int32)
        lane[: len(at)], position[: len(at)] = lanes[np.cumsum(begins) - 1], self.start[stream] + within
        page = 1 + np.arange(bucket * PAGES)
        table = np.zeros((bucket + 1, PAGES), np.int32)  # The last lane is scratch, and so is page 0.
        table[:bucket] = (np.random.default_rng(0).permutation(page) if moved else page).reshape(bucket, PAGES)
        run_lane, run_stream, run_within, live = np.zeros((4, bucket), np.int32)
        runs = int(begins.sum())
        run_lane[:runs], run_stream[:runs], run_within[:runs] = lanes[:runs], stream[begins], within[begins]
        live[:runs] = 1
        return {
            **selected(rows, bucket),
            "places": (lane, position, table),
            "runs": (run_lane, run_stream, run_within, live),
        }

    def _state(self, data: Any, arranged: Any) -> ConvState:
        """What was kept before each run; the rest is NaN."""
        bucket, size = len(arranged["select"]), data["taps"].shape[2]
        rings = jnp.full((LAYERS, bucket + 1, RING, size), jnp.nan, jnp.bfloat16)
        tails = jnp.full((LAYERS, 1 + bucket * PAGES, self.kept, size), jnp.nan, jnp.bfloat16)
        lane, stream, within, live = arranged["runs"]
        for distance in range(1, self.kept + 1):
            position = jnp.asarray(self.start)[stream] + within - distance
            value = data["inputs"][stream, self.kept + within - distance]
            known = (live == 1) & (position >= 0)
            ring, tail, page = self._own_places(position, lane, arranged["places"][2])
            rings = rings.at[LAYER, lane, jnp.where(known, ring, RING)].set(value, mode="drop")
            tails = tails.at[LAYER, page, jnp.where(known, tail, self.kept)].set(value, mode="drop")
        return ConvState(rings, tails)

    def _own_places(self, position: Any, lane: Any, table: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Place in the ring and in the page's tail, past the end where it is in the other."""
        slot = position % PAGE_ROWS - (PAGE_ROWS - self.kept)
        page = jnp.asarray(table)[lane, jnp.maximum(position, 0) // PAGE_ROWS]
        return jnp.where(slot >= 0, RING, position % RING), jnp.where(slot >= 0, slot, self.kept), page

    def step(self, call: Call, data: Any, arranged: Any) -> tuple[tuple[jax.Array, ...], jax.Array]:
        parts = jnp.moveaxis(placed(data["parts"], arranged), 1, 0)
        places = ConvPlaces(*(jnp.asarray(x) for x in arranged["places"]))
        before = self._state(data, arranged)
        y, after = call(parts, data["taps"], before, places, jnp.int32(LAYER), jnp.asarray(arranged["count"]))
        ring, tail, page = self._own_places(places.position, places.lane, places.page_table)
        stored = jnp.where(
            (ring < RING)[:, None],
            after.rings[LAYER, places.lane, jnp.minimum(ring, RING - 1)],
            after.tails[LAYER, page, jnp.minimum(tail, self.kept - 1)],
        )
        # The scratch lane and the scratch page may hold anything.
        live = jnp.arange(len(places.lane)) < arranged["count"]
        own_ring, own_tail = (jnp.zeros(x.shape[:3], bool) for x in after)
        own_ring = own_ring.at[LAYER, places.lane, jnp.where(live, ring, RING)].set(True, mode="drop")
        own_tail = own_tail.at[LAYER, page, jnp.where(live, tail, self.kept)].set(True, mode="drop")
        own_ring, own_tail = own_ring.at[LAYER, -1].set(True), own_tail.at[LAYER, 0].set(True)
        strayed = [
            jnp.sum(jnp.any(_bits(old) != _bits(new), -1) & ~own)
            for old, new, own in zip(before, after, (own_ring, own_tail), strict=True)
        ]
        return (y, stored), strayed[0] + strayed[1]

    def judge(self, rows: Sequence[int], outputs: Sequence[NDArray[Any]]) -> list[Judged]:
        at = np.asarray(rows)
        parts = wide(self.data["parts"])
        gates, sizes = (np.split(x, 3, -1) for x in (parts.sum(1), np.abs(parts).sum(1)))
        earlier = wide(self.data["inputs"][:, : self.kept])
        whole = [
            np.concatenate([edge, (b * x).reshape(STREAMS, self.each, -1)], 1)
            for edge, (b, _, x) in ((earlier, gates), (np.abs(earlier), sizes))
        ]
        taps = wide(self.data["taps"][LAYER])
        stream, within = at // self.each, at % self.each
        wanted, size = np.zeros((2, len(at), taps.shape[1]))
        for distance in range(self.kept + 1):
            known = (self.start[stream] + within >= distance)[:, None]
            inputs, input_sizes = (np.where(known, x[stream, self.kept + within - distance], 0) for x in whole)
            wanted += taps[self.kept - distance] * inputs
            size += np.abs(taps[self.kept - distance]) * input_sizes
        own, own_size = (x[stream, self.kept + within] for x in whole)
        return [
            Judged("mixed", wide(outputs[0]), gates[1][at] * wanted, sizes[1][at] * size, 8e-3, 1.6e-2),
            Judged("stored", wide(outputs[1]), own, own_size, 6e-3, 1.2e-2),
        ]


def _bits(x: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(x, jnp.uint16)


CONV = Subject(
    name="conv_step",
    public=conv_step,
    device="tfjax.kernels.gpu.conv_step",
    cases={name: functools.partial(ConvRows, SPECS[name]) for name in ("LFM2.5-1.2B", "lfm2-moe-code")},
    small=functools.partial(ConvRows, TINY, small=True),
    controls=(
        Control(
            "a row that the ring held before",
            "reference",
            (("read(state.ring(lane, at))", "read(state.ring(lane, at + PAGE_ROWS))"),),
        ),
        Control(
            "position off by one",
            "reference",
            (("jnp.maximum(position - distance, 0)", "jnp.maximum(position - distance + 1, 0)"),),
        ),
        Control("second gate missing", "reference", (("(gate(row, 1).astype(jnp.float32) * total)", "total"),)),
        Control("gates swapped", "reference", (("wide = gate(row, 0)", "wide = gate(row, 1)"),)),
        Control(
            "taps in the other order",
            "reference",
            (("for tap in range(width)]", "for tap in reversed(range(width))]"),),
        ),
        Control("the page's tail forgotten", "reference", (("choose(state.tail_slot(at) >= 0,", "choose(at < 0,"),)),
        Control(
            "inputs before position 0 not cleared",
            "reference",
            (("choose(position >= distance, found,", "choose(position >= 0, found,"),),
        ),
        Control("a row above of another lane", "reference", (("(lane_ref[other] == lane) & ", ""),)),
        Control("the window's first row for all above", "rows", (("gated(other)", "gated(jnp.int32(0))"),)),
        Control("another layer's state", "bounds", (("rings_ref.at[layer]", "rings_ref.at[0]"),)),
        Control(
            "stored one place too far",
            "bounds",
            (("put(state.ring(lane, position)", "put(state.ring(lane, position + 1)"),),
        ),
        Control(
            "rows stored one too far", "bounds", (("outputs[0].at[row, columns]", "outputs[0].at[row + 1, columns]"),)
        ),
    ),
)
