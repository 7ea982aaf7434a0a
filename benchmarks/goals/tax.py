"""What row invariance costs: our window beside XLA's fastest one of the same shape, which need not be invariant."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.blocks import Blocks
from benchmarks.device_window import PAST, windows_of
from benchmarks.goals.llama import timed
from benchmarks.random_weights import random_model
from benchmarks.timing import first_s, queued_ms
from benchmarks.windows import Windows
from benchmarks.xla_window import dense_window
from tfjax.models.llama import FAMILY, LlamaConfig

CASES = ((1, 8), (16, 16))
CASE_S = 25.0


def measure_tax(blocks: Blocks, config: LlamaConfig, kernels: str) -> None:
    """Two copies of the weights are on the device, so that both run in turn."""
    windows = windows_of(config, kernels)
    plain = random_model(FAMILY, config, jnp.bfloat16, "reference")
    for rows, bucket in CASES:
        blocks.run(f"{rows} rows", CASE_S, partial(_taxed, windows, plain, rows, bucket))


def _taxed(windows: Windows, plain: Any, rows: int, bucket: int) -> dict[str, Any]:
    forms: dict[str, Callable[[], jax.Array]] = {
        "paged": Windows(plain, PAST + rows, rows).call(rows, rows, PAST),
        "dense": dense_window(plain, rows, PAST),
    }
    compiled_s = {name: first_s(call) for name, call in forms.items()}
    ours, theirs = [], dict[str, list[float]]()
    for _ in range(2):
        ours.append(timed(windows, rows, bucket, PAST)["value"])
        for name, call in forms.items():
            theirs.setdefault(name, []).append(min(queued_ms(call)))
    least = {name: min(times) for name, times in theirs.items()}
    fastest = min(least, key=lambda name: least[name])
    note = f"ours {min(ours):.2f} ms ({windows.model.kernels.route}), XLA {least[fastest]:.2f} ms"
    print(f"{rows} rows: {note} ({fastest} attention)", flush=True)
    return {"value": min(ours) / least[fastest], "ours_ms": ours, "xla_ms": theirs, "first_s": compiled_s, "note": note}
