"""A prompt of 2,048 rows by the kernels in the server's pieces, beside XLA's own forwards of the same shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.blocks import Blocks
from benchmarks.device_window import windows_of
from benchmarks.random_weights import random_model
from benchmarks.timing import first_s, queued_ms
from benchmarks.windows import Windows
from benchmarks.xla_window import dense_window
from tfjax.engine.buckets import Plan, kernel_plan, row_invariant_plan
from tfjax.engine.weights import LoadedModel
from tfjax.models.llama import FAMILY, LlamaConfig

ROWS, TALL_TILE = 2048, 128
DRAWN = 8
"""Only a prompt's last row is drawn from; the head's product needs its least rows."""
FORM_S = 25.0


def measure_prefill(blocks: Blocks, config: LlamaConfig, kernels: str, rows: int = ROWS) -> None:
    """The faster of XLA's forms is what ours is held against; both models are on the device."""
    windows = windows_of(config, kernels, rows)
    plan = kernel_plan(windows.tile_rows) if windows.model.kernels.stacked else row_invariant_plan(2)
    ours = blocks.run("ours", FORM_S, partial(_timed, windows, _by_plan(plan, rows)))
    model = random_model(FAMILY, config, jnp.bfloat16, "reference")
    xla = Windows(model, rows, TALL_TILE)
    forms = {"XLA, whole": [(rows, rows)], "XLA, in pieces": _by_plan(row_invariant_plan(2), rows)}
    theirs = {name: blocks.run(name, FORM_S, partial(_timed, xla, pieces)) for name, pieces in forms.items()}
    theirs["XLA, dense"] = blocks.run("XLA, dense", FORM_S, partial(_dense, model, rows))
    known = {name: one["ms"] for name, one in theirs.items() if one}
    if ours and known:
        fastest = min(known, key=lambda name: known[name])
        note = f"ours {ours['ms']:.1f} ms ({ours['operators']}), {fastest} {known[fastest]:.1f} ms"
        blocks.keep("speed", {"value": known[fastest] / ours["ms"], "note": note})


def _by_plan(plan: Plan, rows: int) -> list[tuple[int, int]]:
    """(rows, bucket) of each forward that the server makes of a prompt."""
    widest = plan.prompt[-1].rows
    pieces: list[tuple[int, int]] = []
    while rows:
        chunk = min(rows, widest)
        pieces += [(piece, plan.prompt_bucket(piece).rows) for piece in plan.prompt_pieces(chunk)]
        rows -= chunk
    return pieces


def _timed(windows: Windows, pieces: list[tuple[int, int]]) -> dict[str, Any]:
    calls: list[Callable[[], jax.Array]] = []
    start = 0
    for rows, bucket in pieces:
        calls.append(windows.call(rows, bucket, start, drawn=DRAWN))
        start += rows

    def call() -> jax.Array:
        return [one() for one in calls][-1]

    found = _of_call(call, f"{start} rows in {len(pieces)} forwards by {windows.model.kernels.route}")
    return found | {"pieces": pieces, "operators": str(windows.model.kernels.route)}


def _dense(model: LoadedModel, rows: int) -> dict[str, Any]:
    """One forward with attention over a contiguous cache."""
    return _of_call(dense_window(model, rows, 0, drawn=DRAWN), f"{rows} rows in one forward by XLA's own attention")


def _of_call(call: Callable[[], jax.Array], what: str) -> dict[str, Any]:
    compiled_s = first_s(call)
    times = queued_ms(call, runs=3)
    print(f"{what}: {min(times):.2f} ms", flush=True)
    return {"ms": min(times), "times": times, "first_call_s": compiled_s}
