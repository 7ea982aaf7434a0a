"""One plain stream of an LFM2 shape with random weights, by the programs that a server would start with."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.blocks import Blocks
from benchmarks.device_shapes import PLAIN_PROMPT, memory_of, plain_rate
from benchmarks.replies import make
from benchmarks.shapes import CONTEXT, Shape, random_target
from tfjax.engine.api import Generation, Sampling
from tfjax.engine.engine import Engine, Served
from tfjax.engine.load import start_backend
from tfjax.engine.target import TargetBackend
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.settings import Settings
from tfjax.terminal import PhaseLines

START_S, RATE_S, PLAIN_S, TOKENS, REPEATS = 40.0, 6.0, 4.0, 400, 3


def measure_shape(blocks: Blocks, shape: Shape, kernels: str) -> None:
    """Tokens a second through the lane loop, then through the engine. Rows are proved invariant before."""
    backend = blocks.run("start", START_S, partial(_started, shape, kernels), partial(_facts, shape))
    if backend is None:
        return
    note = "; ".join(filter(None, (_note(backend), f"assumed: {shape.assumed}" if shape.assumed else "")))
    rates: dict[str, Callable[[], float]] = {
        "lane loop": partial(plain_rate, backend, PLAIN_S),
        "engine": partial(_engine_rate, backend),
    }
    for how, rate in rates.items():
        found = blocks.run(how, RATE_S, rate, lambda value: {"value": value, "note": note})
        if found:
            print(f"{shape.name}, 1 stream plain, {how}: {found:.0f} tokens/s", flush=True)


def _started(shape: Shape, kernels: str) -> TargetBackend:
    model = random_target(shape, kernels)
    progress = PhaseLines()
    memory = memory_of(model.weight_bytes)
    backend, _ = start_backend(model, memory, progress)
    progress.close()
    del model
    gc.collect()
    return backend


def _facts(shape: Shape, backend: TargetBackend) -> dict[str, Any]:
    return {
        "weights": "random",
        "assumed": shape.assumed,
        "weight_bytes": backend.memory.weight_bytes,
        "arithmetic": backend.plan.arithmetic,
        "operators": str(backend.kernels.route),
        "reason": backend.kernels.reason,
    }


def _note(backend: TargetBackend) -> str:
    reason = " ".join(backend.kernels.reason.split())[:120]
    return "" if backend.kernels.stacked else f"{backend.kernels.route} operators, {backend.plan.arithmetic}: {reason}"


class SilentTokenizer:
    """Tokens of a model that has no words."""

    def token_bytes(self, token: int) -> bytes:
        return b""


def _engine_rate(backend: TargetBackend) -> float:
    """Tokens a second of one greedy reply from its request to its end, median of some after a first one."""
    memory, tokenizer = backend.memory, SilentTokenizer()
    settings = Settings(
        lanes=memory.lanes,
        context=CONTEXT,
        pages=memory.pages,
        page_rows=PAGE_ROWS,
        vocab_size=backend.vocab,
        draft_tokens=0,
    )
    silent: Any = tokenizer
    engine = Engine(backend, settings, Served("random", silent, ()))
    prompt = np.random.default_rng(1).integers(0, backend.vocab, PLAIN_PROMPT).tolist()
    rates = []
    try:
        for repeat in range(REPEATS + 1):
            asked = Generation(f"{repeat}", tuple(prompt), TOKENS, Sampling(temperature=0.0), draft=False)
            start = time.perf_counter()
            (reply,) = make(engine, [asked])
            rates.append(len(reply.tokens) / (time.perf_counter() - start))
    finally:
        engine.close()
    return float(np.median(rates[1:]))
