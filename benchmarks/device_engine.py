"""The served engine by device kernels and by XLA's operators: start, windows, tokens a second, and equal replies.

Models are the default one (or `--model`) and the one that comes with tfjax. Where `--kernels auto` takes XLA's
operators as well, the second run is left out.
"""

from __future__ import annotations

import gc
import logging
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from benchmarks.blocks import Blocks
from benchmarks.device_serve import PAIR, PROMPTS
from benchmarks.replies import make
from tfjax.checkpoints.resolve import resolve_model
from tfjax.config import ServeConfig
from tfjax.engine.api import Generation, Sampling
from tfjax.engine.drafters.assets import ASSETS
from tfjax.engine.engine import Engine
from tfjax.engine.load import load_engine

STREAMS, REPEATS, TOKENS, LONG_PROMPT = (1, 4, 16), 3, 128, 900
START_S, SPEED_S, PREFILL_S, EXACT_S = 90.0, 15.0, 5.0, 60.0
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "seeded": Sampling(temperature=0.8, top_p=0.95, seed=20_261_129),
}


@dataclass(slots=True)
class Phases:
    """Seconds of each phase of a start, by name."""

    seconds: dict[str, float] = field(default_factory=dict)
    _since: tuple[str, float] | None = None

    def __call__(self, phase: str, share: float) -> None:
        now = time.perf_counter()
        if self._since is not None:
            name, start = self._since
            self.seconds[name] = round(self.seconds.get(name, 0.0) + now - start, 3)
        self._since = (phase, now)


def measure_engine(blocks: Blocks, model: str | None = None, kernels: str = "both") -> None:
    """Blocks for each model and each kind of operators: its start, speeds, a long prompt, and equal replies."""
    for name, path in _models(model).items():
        if isinstance(path, Exception):
            blocks.leave_out(name, f"{type(path).__name__}: {path}")
            continue
        for asked in ("auto", "reference") if kernels == "both" else (kernels,):
            at = f"{name}, --kernels {asked}"
            start = partial(Measured, name, path, asked)
            started = blocks.run(at, START_S, start, lambda engine: engine.facts)
            if started is None:
                continue
            with started as engine:
                engine.measure(blocks, at)
            if engine.facts["kernels"]["route"] == "reference":
                break


def _models(model: str | None) -> dict[str, str | Exception]:
    """Names and paths, or why one is not here."""
    try:
        default: str | Exception = str(resolve_model(model, offline=True, progress=lambda phase, share: None))
    except Exception as error:  # noqa: BLE001 - the other model still runs
        default = error
    return {model or "default model": default, PAIR: str(ASSETS / PAIR)}


class Measured:
    """A model started as the server starts it, and what is measured of it. A context manager that ends it.

    Attributes:
        facts: what it says about itself, and how long its start took.
    """

    def __init__(self, name: str, path: str, kernels: str) -> None:
        phases = Phases()
        config = ServeConfig(model=path, parallel=max(STREAMS), context=1024, prompt_cache_gib=0.5, kernels=kernels)
        start = time.perf_counter()
        with _said() as lines:
            self.engine = load_engine(config, phases)
        start_s = time.perf_counter() - start
        about: Any = self.engine.capabilities()
        self.facts = facts = {key: about[key] for key in ("kernels", "arithmetic", "window_ms")}
        facts |= {"start_s": round(start_s, 2), "phases_s": phases.seconds, "lines": lines}
        facts["drafter"] = (about["drafter"] or {}).get("name")
        print(f"{name}, --kernels {kernels}: {about['kernels']}, {about['arithmetic']}, drafter {facts['drafter']}")
        print(f"    start {start_s:.1f} s: {phases.seconds}")
        print(f"    windows {about['window_ms']} ms", flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.engine.close()
        del self.engine
        gc.collect()

    def measure(self, blocks: Blocks, at: str) -> None:
        """A block for each number of streams, one for a long prompt and one for equal replies."""
        for count in STREAMS:
            blocks.run(f"{at}, {count} streams", SPEED_S, lambda: speed(self.engine, count))  # noqa: B023
        blocks.run(f"{at}, prefill", PREFILL_S, lambda: _prefill(self.engine))
        blocks.run(f"{at}, exactness", EXACT_S, lambda: _exactness(self.engine))


@contextmanager
def _said() -> Iterator[list[str]]:
    """What the program logs meanwhile, also printed."""
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())
            print(f"    {lines[-1][:300]}", flush=True)

    logger, handler = logging.getLogger("tfjax"), Kept()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def speed(engine: Engine, streams: int) -> dict[str, Any]:
    """Tokens a second over all streams, plain and drafted in turn, each median of REPEATS."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    for repeat in range(REPEATS + 1):
        for drafted, seen in rates.items():
            asks = [_ask(engine, number, SAMPLINGS["greedy"], drafted) for number in range(streams)]
            start = time.perf_counter()
            replies = make(engine, asks)
            if repeat:  # the first pair warms up
                seen.append(sum(len(reply.tokens) for reply in replies) / (time.perf_counter() - start))
    plain, drafted_rate = statistics.median(rates[False]), statistics.median(rates[True])
    print(f"    {streams:>2} streams: plain {plain:.0f} tokens/s, drafted {drafted_rate:.0f} tokens/s", flush=True)
    return {
        "streams": streams,
        "plain_tokens_per_s": round(plain, 1),
        "drafted_tokens_per_s": round(drafted_rate, 1),
        "plain": [round(rate, 1) for rate in rates[False]],
        "drafted": [round(rate, 1) for rate in rates[True]],
    }


def _prefill(engine: Engine) -> dict[str, Any]:
    """Milliseconds to the first token of a long prompt, fastest of three."""
    prompt = (_encoded(engine, "".join(PROMPTS)) * LONG_PROMPT)[:LONG_PROMPT]
    asks = [Generation("long", prompt, 2, SAMPLINGS["greedy"], draft=False, cache_salt=f"long {i}") for i in range(4)]
    found = [make(engine, [ask])[0].finished.stats.ttft_ms for ask in asks]
    print(f"    first token of {LONG_PROMPT} after {min(found[1:]):.1f} ms", flush=True)
    return {"prompt_tokens": LONG_PROMPT, "ttft_ms": round(min(found[1:]), 2)}


def _exactness(engine: Engine) -> dict[str, Any]:
    """Replies made alone without drafts against the same with drafts, beside others and from kept prompts.

    Raises:
        RuntimeError: one differs.
    """
    asked = [(number, sampling) for number in range(len(PROMPTS)) for sampling in SAMPLINGS]

    def asks(way: str, *, drafted: bool, salted: bool = True) -> list[Generation]:
        return [
            _ask(engine, number, SAMPLINGS[sampling], drafted, f"{way} {number} {sampling}" if salted else "resumed")
            for number, sampling in asked
        ]

    plain = make(engine, asks("alone", drafted=False), 1)
    ways = {
        "alone, drafted": make(engine, asks("alone drafted", drafted=True), 1),
        "12 together": make(engine, asks("together", drafted=False)),
        "12 together, drafted": make(engine, asks("together drafted", drafted=True)),
        "left for later": make(engine, asks("", drafted=True, salted=False), 1),
        "resumed": make(engine, asks("", drafted=True, salted=False)),
    }
    differing = {
        way: sum(one.tokens != other.tokens for one, other in zip(plain, made, strict=True))
        for way, made in ways.items()
    }
    compared = sum(len(reply.tokens) for made in ways.values() for reply in made)
    counting = sum(reply.counting for made in ways.values() for reply in made)
    told = f"{compared} tokens compared, {counting} counting, differing replies: {differing}"
    print(f"    {told}", flush=True)
    if any(differing.values()):
        raise RuntimeError(told)
    return {
        "compared_tokens": compared,
        "counting_tokens": counting,
        "resumed_tokens": sum(reply.finished.stats.cached_tokens for reply in ways["resumed"]),
        "by_way": differing,
    }


def _ask(engine: Engine, number: int, sampling: Sampling, drafted: bool, salt: str = "") -> Generation:
    """A prompt that is longer than a page, so that it can be resumed; its own salt keeps it from what others left."""
    text = PROMPTS[number % len(PROMPTS)] * (2 + number % 5)
    return Generation(
        id=str(number),
        prompt=_encoded(engine, text)[: 70 + 13 * number],
        max_tokens=TOKENS,
        sampling=sampling,
        ignore_eos=True,
        draft=drafted,
        cache_salt=salt or f"speed {time.perf_counter()}",
    )


def _encoded(engine: Engine, text: str) -> tuple[int, ...]:
    return tuple(engine.tokenizer.encode(text))


MODEL_VARIABLE = "TFJAX_BENCH_MODEL"
"""Names the model where `--model` does not."""


def asked_model(option: str | None) -> str | None:
    """From the command line, else from the environment, else None for the default model."""
    return option or os.environ.get(MODEL_VARIABLE) or None
