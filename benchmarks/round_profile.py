"""Where the milliseconds of a round go: `python -m benchmarks.round_profile [--dtype float32] [--output FILE]`.

Each part is what the step gets faster by without it (that part replaced by something free, compiled anew), so parts
overlap a little and the rest is what no part explains. Parts are told at the shortest context only: with a long one,
the numbers that flow when a part is gone change the time of the others. The bytes are those of the weights.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from tfjax.checkpoints import open_checkpoint
from tfjax.checkpoints.resolve import resolve_model
from tfjax.engine.buckets import row_invariant_plan
from tfjax.engine.fitting import fit_memory
from tfjax.engine.rows_buffer import RowsBuffer, Run, lay_out
from tfjax.engine.step import Bucket, Step
from tfjax.engine.target import empty_state
from tfjax.engine.weights import LoadedModel, load_model
from tfjax.kernels.draw import TOP_LOGPROBS, Drawn

RUNS = 9
CONTEXTS = (100, 1000, 3000)


def _no_draw(logits: jax.Array, *_: Any, **__: Any) -> Drawn:
    token, top = logits[:, 0].astype(jnp.int32), (len(logits), TOP_LOGPROBS)
    return Drawn(token, jnp.zeros(len(logits)), jnp.zeros(top, jnp.int32), jnp.zeros(top))


PARTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "attention": ("tfjax.models.blocks.attention.paged_attention", lambda q, *_, **__: q),
    "cache writes": ("tfjax.models.blocks.attention.write_rows", lambda keys, values, *_: (keys, values)),
    "norms": ("tfjax.models.blocks.norm.rms_norm", lambda x, *_: x),
    "rotation": ("tfjax.models.blocks.qk_norm.rotate", lambda x, *_, **__: x),
    "draw": ("tfjax.engine.step.draw_as_read", _no_draw),
    "head": (
        "tfjax.models.llama.rows_matmul",
        lambda x, weight: jnp.tile(x, (1, 1 + weight.shape[0] // x.shape[1]))[:, : weight.shape[0]].astype(jnp.float32),
    ),
}
"""Name -> the function that does it where a Llama in modules looks it up, and what stands in for it."""


@contextmanager
def without(part: str | None) -> Iterator[None]:
    """Replace one part while a step is traced."""
    jax.clear_caches()
    if part is None:
        yield
        return
    name, replacement = PARTS[part]
    with patch(name, replacement):
        yield


class Timer:
    """Times one bucket of a model with and without parts."""

    def __init__(self, model: LoadedModel, bucket: Bucket):
        self.model, self.bucket = model, bucket
        self.memory = fit_memory(model, asked=4096, lanes=4)
        pages = np.zeros((5, self.memory.pages_per_lane), np.int32)
        pages[0] = 1 + np.arange(self.memory.pages_per_lane)
        self.table = jnp.array(pages)

    def step_ms(self, part: str | None) -> dict[int, float]:
        """Fastest milliseconds of a step by context."""
        with without(part):
            step = Step(self.model.module)
            state = empty_state(self.model, self.memory)
            step.compile(self.bucket, state, self.table)
        result = {}
        for context in CONTEXTS:
            buffer = RowsBuffer(self.bucket.rows)
            rows = 1 if self.bucket.rows == 2 else self.bucket.rows
            lay_out(buffer, [Run(0, context, rows)], tile_rows=self.bucket.tile_rows, scratch_lane=4)
            times = []
            for _ in range(RUNS):
                start = time.perf_counter()
                stepped = step(self.bucket, state, np.zeros(self.bucket.rows, np.int32), buffer.matrix, self.table)
                state = stepped.state
                jax.block_until_ready(stepped.drawn)
                times.append(1000 * (time.perf_counter() - start))
            result[context] = min(times)
        return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--rows", type=int, default=2, help="bucket of the step (default: 2, a plain round)")
    parser.add_argument("--output", type=Path, help="JSON file for the table")
    arguments = parser.parse_args()
    checkpoint = open_checkpoint(resolve_model(None, offline=True, progress=lambda phase, fraction: None))
    model = load_model(checkpoint, arguments.dtype, lambda phase, fraction: None, kernels="reference")
    timer = Timer(model, row_invariant_plan(2).verify_bucket(arguments.rows, arguments.rows))
    whole = timer.step_ms(None)
    short = CONTEXTS[0]
    parts = {part: whole[short] - timer.step_ms(part)[short] for part in PARTS}
    parts["products and the rest"] = whole[short] - sum(parts.values())
    print(
        f"{arguments.dtype}, {arguments.rows} rows, whole step: "
        + ", ".join(f"{c}: {ms:.1f} ms" for c, ms in whole.items())
    )
    for name, ms in parts.items():
        print(f"{name:25s} {ms:6.1f} ms at context {short}")
    weights = sum(leaf.nbytes for leaf in Step(model.module).parameters)
    print(f"weights read by a step: {weights / 1e6:.0f} MB, {weights / 1e6 / whole[short]:.1f} GB/s")
    if arguments.output:
        facts = {
            "dtype": arguments.dtype,
            "rows": arguments.rows,
            "weights_bytes": weights,
            "whole_ms_by_context": whole,
            "parts_ms": parts,
        }
        arguments.output.write_text(json.dumps(facts, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
