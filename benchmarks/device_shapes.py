"""Windows, holds and plain streams of published shapes with random weights, one bucket for all forwards of a kind.

What is timed are the server's own programs: the target's forward with the drafter's taps and draws, the drafter's hold.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchmarks.blocks import Blocks
from benchmarks.shapes import CONTEXT, SHAPES, Shape, random_drafter, random_target
from tfjax.engine.buckets import Plan
from tfjax.engine.compiling import compile_all
from tfjax.engine.drafters.block_plan import BlockBucket, BlockPlan
from tfjax.engine.drafters.block_step import ASK_FIELDS, BlockStep
from tfjax.engine.kernel_choice import Kernels
from tfjax.engine.memory import MemoryPlan, memory_budget
from tfjax.engine.rows_buffer import RowsBuffer, Run, lay_out
from tfjax.engine.step import Bucket, Step
from tfjax.engine.target import TargetBackend
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.loop import Lanes
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request, Stream

ROWS, STREAMS, DEPTHS = (16, 32, 64), (1, 4, 16), (1, 4, 9)
PAST, TILE_ROWS, WARM, RUNS = 512, 16, 2, 15
"""Positions before a window or block; rows of an attention tile; calls that are not timed, and that are."""
PLAIN_PROMPT, PLAIN_TOKENS, PLAIN_S = 64, 400, 4.0
FIRST_COMPILE_S, CAUTION, OTHER_S = 25.0, 1.25, 8.0
"""What the first shape's programs are expected to take; how much longer a next one's may, by layer; all else."""


@dataclass(slots=True)
class Timed:
    """Milliseconds of one program.

    Attributes:
        ms: median of calls that were each waited for, as a round waits for its draws.
        least_ms: of them.
        queued_ms: of one call among many that are queued at once, as a device with nothing to wait for takes.
    """

    ms: float
    least_ms: float
    queued_ms: float


@dataclass(slots=True)
class Made:
    """A shape on the device, with its compiled programs."""

    backends: dict[int, TargetBackend]
    holds: BlockStep
    cache: Any
    page_table: jax.Array
    seconds: dict[str, float]
    drafts_by: Kernels


def measure_shapes(blocks: Blocks, kernels: str = "auto", shapes: Sequence[Shape] = SHAPES) -> None:
    """Prints a line for each window and hold. A shape that memory or time does not suffice for is left out with why."""
    compile_s = FIRST_COMPILE_S
    for index, shape in enumerate(shapes):
        ratio = 1.0 if not index else shape.target.layers / shapes[index - 1].target.layers
        needed_s = CAUTION * compile_s * ratio + OTHER_S
        reason = obstacle(shape.weight_bytes, max(0.0, blocks.left_s), needed_s)
        if reason:
            blocks.leave_out(shape.name, reason)
            continue
        row = blocks.run(shape.name, 0.0, partial(_measure, shape, kernels, blocks))
        compile_s = row["seconds"]["compiling"] if row else compile_s * ratio
        jax.clear_caches()
        gc.collect()


def obstacle(weight_bytes: int, left_s: float, needed_s: float) -> str:
    """Why a shape cannot be measured now; empty where it can."""
    budget = memory_budget()
    if weight_bytes > budget:
        return f"its weights take {weight_bytes / 2**30:.1f} GiB, the device has {budget / 2**30:.1f} GiB for them"
    if needed_s > left_s:
        return f"it is expected to take {needed_s:.0f} s and {left_s:.0f} s are left; give more --seconds"
    return ""


def _measure(shape: Shape, kernels: str, blocks: Blocks) -> dict[str, Any]:
    made = _make(shape, kernels)
    operators, drafts_by = str(made.backends[ROWS[0]].kernels.route), made.drafts_by
    gib, assumed = shape.weight_bytes / 2**30, f"; assumed: {shape.assumed}" if shape.assumed else ""
    print(
        f"{shape.name} shape, random weights, {gib:.1f} GiB with the drafter, {operators} operators, context {PAST}: "
        f"weights {made.seconds['weights']:.1f} s, compiling {made.seconds['compiling']:.1f} s{assumed}"
    )
    windows, holds = {}, {}
    for rows in ROWS:
        windows[rows] = _timed(_window(made, rows))
        print(f"  window of {rows:2d} rows: {_told(windows[rows])}", flush=True)
    for streams in STREAMS:
        holds[streams] = {depth: _timed(_hold(made, streams, depth)) for depth in DEPTHS}
        told = "; ".join(f"depth {depth}: {_told(timed)}" for depth, timed in holds[streams].items())
        print(f"  hold of {streams:2d} streams: {told}", flush=True)
    plain = {}
    if shape.plain:
        for rows in (ROWS[0], ROWS[-1]):
            plain[rows] = plain_rate(made.backends[rows], min(PLAIN_S, blocks.left_s))
            print(f"  plain, 1 stream through the lane loop, bucket of {rows}: {plain[rows]:.0f} tokens/s", flush=True)
    return {
        "shape": shape.name,
        "weights": "random",
        "assumed": shape.assumed,
        "weight_bytes": {"target": shape.target_bytes, "drafter": shape.drafter_bytes},
        "operators": operators,
        "drafter_operators": f"{drafts_by.route}: {drafts_by.reason}",
        "context": PAST,
        "seconds": {name: round(value, 1) for name, value in made.seconds.items()},
        "window_ms": {rows: _as_dict(timed) for rows, timed in windows.items()},
        "hold_ms": {n: {depth: _as_dict(timed) for depth, timed in row.items()} for n, row in holds.items()},
        "plain_tokens_per_s_by_bucket": {rows: round(rate, 1) for rows, rate in plain.items()},
    }


def _make(shape: Shape, kernels: str) -> Made:
    start = time.perf_counter()
    target = random_target(shape, kernels)
    form = shape.family.stacked if target.kernels.stacked else None
    tile_rows = form.tile_rows(shape.target) if form else TILE_ROWS
    drafter = random_drafter(shape, target)
    jax.block_until_ready(jax.tree.leaves(nnx.state(target.module)))
    weights_s = time.perf_counter() - start
    start = time.perf_counter()
    step = Step(target.module, shape.drafter.taps, target.kernels.route)
    memory = memory_of(shape.weight_bytes)
    buckets = {rows: Bucket(rows, rows, tile_rows) for rows in ROWS}
    backends = {
        rows: TargetBackend(target, step, Plan("one bucket", (bucket,), (bucket,)), memory)
        for rows, bucket in buckets.items()
    }
    first = backends[ROWS[0]]
    table = _page_table(memory)
    holds = tuple(BlockBucket(count, shape.drafter.block) for count in STREAMS)
    plan = BlockPlan(shape.drafter.block, shape.drafter.first_slot, holds, ())
    block_step = BlockStep(drafter.loaded.module, plan)
    cache = drafter.empty_cache(memory.pages + 1, memory.lanes + 1)
    programs = [
        *(partial(step.prepare, bucket, first.state, table) for bucket in buckets.values()),
        *(partial(block_step.prepare_holding, bucket, cache, first.state, table) for bucket in holds),
    ]
    compile_all(programs, "compiling", lambda phase, share: None)
    seconds = {"weights": weights_s, "compiling": time.perf_counter() - start}
    return Made(backends, block_step, cache, table, seconds, drafter.loaded.kernels)


def memory_of(weight_bytes: int) -> MemoryPlan:
    """Of the most streams with all of the context each."""
    lanes = STREAMS[-1]
    return MemoryPlan(
        context=CONTEXT,
        context_fitted=False,
        lanes=lanes,
        pages=lanes * -(-CONTEXT // PAGE_ROWS),
        cache_bytes=0,
        weight_bytes=weight_bytes,
        budget_bytes=memory_budget(),
    )


def _page_table(memory: MemoryPlan) -> jax.Array:
    """Every lane has its whole context; page 0 and the last lane are scratch. Shape: int32 [lanes + 1, pages]."""
    table = np.zeros((memory.lanes + 1, memory.pages_per_lane), np.int32)
    own = memory.pages // memory.lanes
    table[: memory.lanes, :own] = 1 + np.arange(memory.pages).reshape(memory.lanes, own)
    return jnp.array(table)


def _window(made: Made, rows: int) -> Callable[[], Any]:
    """A forward of so many rows of one stream behind PAST others."""
    backend = made.backends[rows]
    bucket, buffer = backend.plan.verify[0], RowsBuffer(rows)
    lay_out(buffer, [Run(0, PAST, rows)], tile_rows=bucket.tile_rows, scratch_lane=backend.memory.lanes)
    buffer["draw_row"][:] = np.arange(rows)
    token = np.random.default_rng(0).integers(0, backend.vocab, rows).astype(np.int32)

    def run() -> Any:
        stepped = backend.step(bucket, backend.state, token, buffer.matrix, made.page_table)
        backend.state = stepped.state
        return stepped.drawn.token

    return run


def _hold(made: Made, streams: int, depth: int) -> Callable[[], Any]:
    """A hold for streams of PAST positions each. Draws are sampled ones, which take a little longer."""
    bucket = made.holds.plan.hold_bucket(streams, depth)
    buffer, asks = RowsBuffer(bucket.streams), np.zeros((len(ASK_FIELDS), bucket.streams), np.int32)
    buffer["lane"][:], buffer["position"][:] = np.arange(streams), PAST
    buffer["temperature"][:], buffer["tile_count"][0] = 1.0, streams
    asks[ASK_FIELDS.index("token")], asks[ASK_FIELDS.index("slots")] = 1 + np.arange(streams), bucket.slots
    asks[ASK_FIELDS.index("depth")] = depth
    state = made.backends[ROWS[0]].state
    told = np.concatenate([buffer.matrix, asks])

    def run() -> Any:
        drafts, _, made.cache = made.holds.hold(bucket, made.cache, state, told, made.page_table)
        return drafts.token

    return run


def _timed(run: Callable[[], Any]) -> Timed:
    for _ in range(WARM):
        jax.block_until_ready(run())
    waited = []
    for _ in range(RUNS):
        start = time.perf_counter()
        jax.block_until_ready(run())
        waited.append(time.perf_counter() - start)
    start = time.perf_counter()
    for _ in range(RUNS):
        last = run()
    jax.block_until_ready(last)
    queued = (time.perf_counter() - start) / RUNS
    return Timed(1e3 * statistics.median(waited), 1e3 * min(waited), 1e3 * queued)


class _Counting:
    """A listener that counts."""

    def __init__(self) -> None:
        self.tokens = 0

    def on_tokens(self, stream: Stream, tokens: Sequence[int], logprobs: Sequence[Any] | None) -> None:
        self.tokens += len(tokens)

    def on_finish(self, stream: Stream) -> None:
        if stream.error:
            raise RuntimeError(stream.error)


def plain_rate(backend: TargetBackend, seconds: float) -> float:
    """Tokens a second of one greedy stream through the lane loop, from its second token on."""
    listener = _Counting()
    settings = Settings(
        lanes=backend.memory.lanes,
        context=CONTEXT,
        pages=backend.memory.pages,
        page_rows=PAGE_ROWS,
        vocab_size=backend.vocab,
        draft_tokens=0,
    )
    lanes = Lanes(backend, time.perf_counter, settings, listener)
    prompt = np.random.default_rng(1).integers(0, backend.vocab, PLAIN_PROMPT).tolist()
    lanes.admit(Request("plain", tuple(prompt), PLAIN_TOKENS, drafts=False))
    while listener.tokens < 2 and lanes.round():
        pass
    first, start = listener.tokens, time.perf_counter()
    while time.perf_counter() - start < seconds and lanes.round():
        pass
    return (listener.tokens - first) / (time.perf_counter() - start)


def _told(timed: Timed) -> str:
    return f"{timed.ms:.2f} ms (least {timed.least_ms:.2f}, queued {timed.queued_ms:.2f})"


def _as_dict(timed: Timed) -> dict[str, float]:
    return {name: round(getattr(timed, name), 3) for name in ("ms", "least_ms", "queued_ms")}
