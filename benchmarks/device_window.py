"""A window of a Llama-3-8B shape with random weights: wall time, time of each kernel, and rows held to their bits."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.blocks import Blocks
from benchmarks.device_kernels import BYTES_PER_SECOND, measured_once
from benchmarks.random_weights import random_model
from benchmarks.timing import first_s, queued_ms
from benchmarks.windows import Windows, llama_of, read_bytes
from tfjax.kernels.specs import SPECS
from tfjax.models.llama import FAMILY, LlamaConfig

PAST, CAPACITY, TILE_ROWS = 512, 1024, 16
CASES = ((1, 8), (16, 16), (64, 64))
"""Rows of the window, and rows of the bucket that it is padded to."""
SPEC = SPECS["Llama-3-8B"]
CASE_S = 25.0


def measure_windows(blocks: Blocks, layers: int, kernels: str = "auto") -> None:
    """Prints a line per row count, then where the time of each goes."""
    measure_cases(blocks, windows_of(llama_of(SPEC, layers), kernels))


def windows_of(config: LlamaConfig, kernels: str, capacity: int = CAPACITY) -> Windows:
    """A model with random weights on the device, and a cache."""
    model = random_model(FAMILY, config, jnp.bfloat16, kernels)
    form = FAMILY.stacked if model.kernels.stacked else None
    return Windows(model, capacity, form.tile_rows(config) if form else TILE_ROWS)


def floor_ms(config: LlamaConfig, past: int = 0) -> float:
    """Milliseconds that memory needs for what a window has to read."""
    return read_bytes(config, past) / BYTES_PER_SECOND * 1e3


def measure_cases(blocks: Blocks, windows: Windows) -> None:
    """A block for each case, and one that holds their rows to their bits."""
    config, kept = windows.model.config, dict[int, Any]()
    print(
        f"{config.layers} layers, random weights, context {PAST}, {windows.model.kernels.route}: "
        f"{read_bytes(config) / 1e9:.1f} GB, floor {floor_ms(config):.2f} ms",
        flush=True,
    )
    for rows, bucket in CASES:
        blocks.run(f"{rows} rows", CASE_S, lambda: _case(windows, rows, bucket, kept))  # noqa: B023 - called at once
    blocks.run("equal bits", 0.0, lambda: equal_rows(kept, must=windows.model.kernels.stacked))


def _case(windows: Windows, rows: int, bucket: int, kept: dict[int, Any]) -> dict[str, Any]:
    config = windows.model.config
    call = windows.call(rows, bucket, PAST)
    compiled_s = first_s(call)
    kept[rows] = np.asarray(call())[:rows]
    ms = min(queued_ms(call))
    row: dict[str, Any] = {"rows": rows, "bucket": bucket, "ms": ms, "floor_ms": floor_ms(config)}
    row |= {"first_call_s": compiled_s, "gb_per_s": read_bytes(config) / ms / 1e6}
    print(
        f"{rows:>3} rows in {bucket:>3}: {ms:.2f} ms, {row['gb_per_s']:.0f} GB/s, first call {compiled_s:.1f} s",
        flush=True,
    )
    return row | {"kernels": _kernels(call)}


def equal_rows(kept: dict[int, Any], *, must: bool) -> dict[str, bool]:
    """Whether a window's rows have the bits that they have among more; XLA's products need not.

    Raises:
        RuntimeError: they must and have not.
    """
    counts = sorted(kept)
    equal = {
        f"{few} among {many}": bool((kept[few] == kept[many][:few]).all()) for few, many in itertools.pairwise(counts)
    }
    print(f"bits of the logits are equal: {equal}", flush=True)
    if must and not all(equal.values()):
        raise RuntimeError(f"rows have other bits among more rows: {equal}")
    return equal


def _kernels(window: Callable[[], Any]) -> dict[str, Any]:
    """Sums by kernel name, and how many launches; nothing where there is no CUPTI."""
    if jax.default_backend() != "gpu":
        return {}
    try:
        kernels = measured_once(window)
    except Exception as error:  # noqa: BLE001 - the wall times stand without it
        print(f"    no kernel times: {type(error).__name__}: {str(error)[:200]}")
        return {}
    total: defaultdict[str, float] = defaultdict(float)
    count: Counter[str] = Counter()
    for name, us in kernels:
        short = name.split("_mosaic")[0][:28]
        total[short] += us
        count[short] += 1
    told = [
        f"{name} {count[name]} x {us / count[name]:.1f} us"
        for name, us in sorted(total.items(), key=lambda item: -item[1])[:9]
    ]
    print(f"    {len(kernels)} kernels, {sum(total.values()) / 1e3:.2f} ms: {'; '.join(told)}", flush=True)
    return {name: {"launches": count[name], "us": us} for name, us in total.items()}
