"""The served engine by device kernels and by XLA's operators: start, windows, tokens a second, and equal replies.

Models are the default one (or `--model`) and the one that comes with tfjax. Where `--kernels auto` takes XLA's
operators as well, the second run is left out.
"""

from __future__ import annotations

import gc
import logging
import os
import queue
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.device_serve import PAIR, PROMPTS
from tfjax.checkpoints.resolve import resolve_model
from tfjax.config import ServeConfig
from tfjax.engine.api import Finished, Generation, Sampling, Tokens
from tfjax.engine.drafters.assets import ASSETS
from tfjax.engine.engine import Engine
from tfjax.engine.load import load_engine

STREAMS, REPEATS, TOKENS, LONG_PROMPT = (1, 4, 16), 3, 128, 900
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


@dataclass(frozen=True, slots=True)
class Ask:
    """One reply to be made. `drafted`: whether it may draft; `salt` keeps it from prompts that others left."""

    prompt: Sequence[int]
    sampling: Sampling
    drafted: bool
    salt: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """One that was made. `counting`: its tokens from rounds that verified drafts."""

    tokens: tuple[int, ...]
    counting: int
    cached: int
    ttft_ms: float


def measure_engine(model: str | None = None) -> dict[str, Any]:
    """A table for each model and each kind of operators. `failed` names those whose replies differed."""
    found: dict[str, Any] = {"failed": []}
    for name, path in _models(model).items():
        found[name] = runs = {}
        if isinstance(path, Exception):
            runs["not run"] = f"{type(path).__name__}: {path}"
            print(f"{name}: not run, {path}")
            continue
        for kernels in ("auto", "reference"):
            runs[kernels] = run = _measured(name, path, kernels)
            if run["exactness"]["differing"]:
                found["failed"].append(f"{name} {kernels}")
            if run["kernels"]["route"] == "reference":
                break
    return found


def _models(model: str | None) -> dict[str, str | Exception]:
    """Names and paths, or why one is not here."""
    try:
        default: str | Exception = str(resolve_model(model, offline=True, progress=lambda phase, share: None))
    except Exception as error:  # noqa: BLE001 - the other model still runs
        default = error
    return {model or "default model": default, PAIR: str(ASSETS / PAIR)}


def _measured(name: str, path: str, kernels: str) -> dict[str, Any]:
    phases = Phases()
    config = ServeConfig(model=path, parallel=max(STREAMS), context=1024, prompt_cache_gib=0.5, kernels=kernels)
    start = time.perf_counter()
    with _said() as lines:
        engine = load_engine(config, phases)
    start_s = time.perf_counter() - start
    try:
        about: Any = engine.capabilities()
        facts = {key: about[key] for key in ("kernels", "arithmetic", "window_ms")}
        facts |= {"start_s": round(start_s, 2), "phases_s": phases.seconds, "lines": lines}
        facts["drafter"] = (about["drafter"] or {}).get("name")
        print(f"{name}, --kernels {kernels}: {about['kernels']}, {about['arithmetic']}, drafter {facts['drafter']}")
        print(f"    start {start_s:.1f} s: {phases.seconds}")
        print(f"    windows {about['window_ms']} ms", flush=True)
        facts["speed"] = [_speed(engine, count) for count in STREAMS]
        facts["prefill"] = _prefill(engine)
        facts["exactness"] = _exactness(engine)
        return facts
    finally:
        engine.close()
        del engine
        gc.collect()


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


def _speed(engine: Engine, streams: int) -> dict[str, Any]:
    """Tokens a second over all streams, plain and drafted in turn, each median of REPEATS."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    for repeat in range(REPEATS + 1):
        for drafted, seen in rates.items():
            asks = [_ask(engine, number, SAMPLINGS["greedy"], drafted) for number in range(streams)]
            start = time.perf_counter()
            replies = _make(engine, asks)
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
    found = [
        _make(engine, [Ask(prompt, SAMPLINGS["greedy"], False, f"long {number}")], 2)[0].ttft_ms for number in range(4)
    ]
    print(f"    first token of {LONG_PROMPT} after {min(found[1:]):.1f} ms", flush=True)
    return {"prompt_tokens": LONG_PROMPT, "ttft_ms": round(min(found[1:]), 2)}


def _exactness(engine: Engine) -> dict[str, Any]:
    """Replies made alone without drafts against the same with drafts, beside others and from kept prompts."""
    asked = [(number, sampling) for number in range(len(PROMPTS)) for sampling in SAMPLINGS]

    def asks(way: str, *, drafted: bool, salted: bool = True) -> list[Ask]:
        return [
            _ask(engine, number, SAMPLINGS[sampling], drafted, f"{way} {number} {sampling}" if salted else "resumed")
            for number, sampling in asked
        ]

    def alone(some: Sequence[Ask]) -> list[Reply]:
        return [_make(engine, [one])[0] for one in some]

    plain = alone(asks("alone", drafted=False))
    ways = {
        "alone, drafted": alone(asks("alone drafted", drafted=True)),
        "12 together": _make(engine, asks("together", drafted=False)),
        "12 together, drafted": _make(engine, asks("together drafted", drafted=True)),
        "left for later": alone(asks("", drafted=True, salted=False)),
        "resumed": _make(engine, asks("", drafted=True, salted=False)),
    }
    differing = {
        way: sum(one.tokens != other.tokens for one, other in zip(plain, made, strict=True))
        for way, made in ways.items()
    }
    compared = sum(len(reply.tokens) for made in ways.values() for reply in made)
    counting = sum(reply.counting for made in ways.values() for reply in made)
    print(f"    {compared} tokens compared, {counting} counting, differing replies: {differing}", flush=True)
    return {
        "compared_tokens": compared,
        "counting_tokens": counting,
        "resumed_tokens": sum(reply.cached for reply in ways["resumed"]),
        "by_way": differing,
        "differing": sum(differing.values()),
    }


def _ask(engine: Engine, number: int, sampling: Sampling, drafted: bool, salt: str = "") -> Ask:
    """A prompt that is longer than a page, so that it can be resumed."""
    text = PROMPTS[number % len(PROMPTS)] * (2 + number % 5)
    return Ask(_encoded(engine, text)[: 70 + 13 * number], sampling, drafted, salt or f"speed {time.perf_counter()}")


def _encoded(engine: Engine, text: str) -> tuple[int, ...]:
    return tuple(engine.tokenizer.encode(text))


def _make(engine: Engine, asks: Sequence[Ask], tokens: int = TOKENS) -> list[Reply]:
    """All submitted at once."""
    events: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    for number, ask in enumerate(asks):
        generation = Generation(
            id=str(number),
            prompt=tuple(ask.prompt),
            max_tokens=tokens,
            sampling=ask.sampling,
            ignore_eos=True,
            draft=ask.drafted,
            cache_salt=ask.salt,
        )
        engine.submit(generation, lambda event, number=number: events.put((number, event)))
    found: list[list[int]] = [[] for _ in asks]
    replies: dict[int, Reply] = {}
    while len(replies) < len(asks):
        number, event = events.get(timeout=120)
        if isinstance(event, Tokens):
            found[number] += event.tokens
        elif isinstance(event, Finished):
            if event.error:
                raise RuntimeError(event.error)
            stats = event.stats
            counting = min(stats.completion_tokens, stats.drafted_rounds + stats.accepted)
            replies[number] = Reply(tuple(found[number]), counting, stats.cached_tokens, stats.ttft_ms)
    return [replies[number] for number in range(len(asks))]


MODEL_VARIABLE = "TFJAX_BENCH_MODEL"
"""Names the model where `--model` does not."""


def asked_model(option: str | None) -> str | None:
    """From the command line, else from the environment, else None for the default model."""
    return option or os.environ.get(MODEL_VARIABLE) or None
