"""Windows of a Llama's stream behind a short context and behind a long one."""

from __future__ import annotations

from typing import Any

from benchmarks.blocks import Blocks
from benchmarks.device_window import PAST, floor_ms, windows_of
from benchmarks.timing import first_s, queued_ms
from benchmarks.windows import Windows
from tfjax.models.llama import LlamaConfig

CASES = ((1, 8), (8, 8), (16, 16), (64, 64))
"""Rows, and rows of the bucket that they are padded to."""
CASE_S = 12.0


def measure_windows(blocks: Blocks, config: LlamaConfig, kernels: str) -> None:
    """Milliseconds of each window."""
    windows = windows_of(config, kernels)
    for rows, bucket in CASES:
        blocks.run(f"{rows} rows", CASE_S, lambda: timed(windows, rows, bucket, PAST))  # noqa: B023 - called at once


def measure_long(blocks: Blocks, config: LlamaConfig, kernels: str, past: int) -> None:
    """One row behind `past` positions."""
    windows = windows_of(config, kernels, past + CASES[-1][0])
    rows, bucket = CASES[0]
    blocks.run(f"{rows} rows", CASE_S, lambda: timed(windows, rows, bucket, past))


def timed(windows: Windows, rows: int, bucket: int, past: int) -> dict[str, Any]:
    """Least milliseconds of a queued window, with the operators that ran it."""
    config, route = windows.model.config, windows.model.kernels.route
    call = windows.call(rows, bucket, past)
    compiled_s = first_s(call)
    times = queued_ms(call)
    floor = floor_ms(config, past)
    print(f"{rows:>3} rows in {bucket:>3} after {past}: {min(times):.3f} ms, floor {floor:.2f} ms, {route}", flush=True)
    return {
        "value": min(times),
        "times": times,
        "floor_ms": floor,
        "first_call_s": compiled_s,
        "operators": str(route),
        "note": "" if windows.model.kernels.stacked else f"{route} operators: {windows.model.kernels.reason}",
    }
