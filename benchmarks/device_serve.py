"""Drafted against plain on a trained pair, through engine and lane loop, without a server: speed and equality.

Every cell makes the same replies with and without drafts, one way after the other, several times.
"""

from __future__ import annotations

import queue
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfjax.config import ServeConfig
from tfjax.engine.api import Finished, Generation, Sampling, Tokens
from tfjax.engine.drafters.assets import ASSETS
from tfjax.engine.engine import Engine
from tfjax.engine.load import load_engine
from tfjax.terminal import PhaseLines

PAIR = "lfm2-moe-code"
STREAMS, TEMPERATURES, REPEATS, TOKENS = (1, 4, 16), (0.0, 0.8), 3, 256
PROMPTS = (
    '"""Read a table of numbers."""\n\nfrom __future__ import annotations\n\nimport csv\n',
    "class Queue:\n    def __init__(self, maxsize=0):\n        self.maxsize = maxsize\n",
    "def parse_args(argv=None):\n    parser = argparse.ArgumentParser(",
    "import unittest\n\nclass TestSorting(unittest.TestCase):\n    def test_empty(self):\n",
    'def read_file(path, encoding=\'utf-8\'):\n    """Return the text of a file.\n',
    "    for key, value in sorted(mapping.items()):\n        if value is None:\n",
)


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply's tokens and, of them, those of rounds that verified drafts; drafts kept and rounds."""

    tokens: tuple[int, ...]
    counting: int
    accepted: int
    rounds: int


def measure_serving(*, streams: Sequence[int] = STREAMS, repeats: int = REPEATS, tokens: int = TOKENS) -> Any:
    """A row for each number of streams and temperature; raises where a reply differs."""
    config = ServeConfig(model=str(ASSETS / PAIR), parallel=max(streams), context=1024, prompt_cache_gib=0)
    engine = load_engine(config, PhaseLines())
    try:
        about = engine.capabilities()
        facts = {name: about[name] for name in ("arithmetic", "window_ms", "drafter")}
        print(f"{PAIR} with {about['drafter']['name']}, {about['arithmetic']}, windows {about['window_ms']} ms")
        print("streams    T  drafted/plain (least, most)  plain tok/s  kept a round  counting  differing")
        cells = []
        for count in streams:
            for temperature in TEMPERATURES:
                cells.append(_cell(engine, count, temperature, repeats, tokens))
                print(_line(cells[-1]), flush=True)
        return facts | {"tokens": tokens, "cells": cells}
    finally:
        engine.close()


def _cell(engine: Engine, streams: int, temperature: float, repeats: int, tokens: int) -> dict[str, Any]:
    ratios, plain_rates, drafted, differing, counting = [], [], [], 0, 0
    _make(engine, streams, temperature, tokens, draft=True)
    for repeat in range(repeats):
        found = {}
        for draft in (True, False) if repeat % 2 else (False, True):
            found[draft] = _make(engine, streams, temperature, tokens, draft=draft)
        drafted, plain = found[True][1], found[False][1]
        differing += sum(one.tokens != other.tokens for one, other in zip(drafted, plain, strict=True))
        counting += sum(reply.counting for reply in drafted)
        ratios.append(found[False][0] / found[True][0])
        plain_rates.append(sum(len(reply.tokens) for reply in plain) / found[False][0])
    return {
        "streams": streams,
        "temperature": temperature,
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "plain_tokens_per_s": round(statistics.median(plain_rates), 1),
        "kept_per_round": round(sum(r.accepted for r in drafted) / max(1, sum(r.rounds for r in drafted)), 3),
        "counting_tokens": counting,
        "differing_replies": differing,
    }


def _make(engine: Engine, streams: int, temperature: float, tokens: int, *, draft: bool) -> tuple[float, list[Reply]]:
    """Seconds and replies of one batch, all submitted at once."""
    events: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    start = time.perf_counter()
    for number in range(streams):
        generation = Generation(
            id=str(number),
            prompt=tuple(engine.tokenizer.encode(PROMPTS[number % len(PROMPTS)])),
            max_tokens=tokens,
            sampling=Sampling(temperature=temperature, seed=number),
            ignore_eos=True,
            draft=draft,
        )
        engine.submit(generation, lambda event, number=number: events.put((number, event)))
    found: list[list[int]] = [[] for _ in range(streams)]
    replies: dict[int, Reply] = {}
    while len(replies) < streams:
        number, event = events.get()
        if isinstance(event, Tokens):
            found[number] += event.tokens
        elif isinstance(event, Finished):
            if event.error:
                raise RuntimeError(event.error)
            stats = event.stats
            counting = min(stats.completion_tokens, stats.drafted_rounds + stats.accepted)
            replies[number] = Reply(tuple(found[number]), counting, stats.accepted, stats.rounds)
    return time.perf_counter() - start, [replies[number] for number in range(streams)]


def _line(cell: dict[str, Any]) -> str:
    spread = f"({min(cell['ratios']):.2f}, {max(cell['ratios']):.2f})"
    return (
        f"{cell['streams']:7d} {cell['temperature']:4g}  {cell['ratio']:13.2f} {spread:14s}"
        f"  {cell['plain_tokens_per_s']:11.0f}  {cell['kept_per_round']:12.2f}"
        f"  {cell['counting_tokens']:8d}  {cell['differing_replies']:9d}"
    )
