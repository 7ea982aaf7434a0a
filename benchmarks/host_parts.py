"""What a round of the engine costs the processor outside device work, part by part.

`python -m benchmarks.host_parts [--form stacks] [--streams 1,4,16] [--json FILE]`

The real engine serves the pair that comes with tfjax, with every compiled program replaced by one that takes and gives
the same arrays and computes nothing: it draws a text by position, which the drafter guesses right. `call` parts are
then what it costs to start a program with so many arguments. Times are of the engine's thread, medians over rounds;
parts are timed in a run of their own, since timing them costs time too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np

from benchmarks.instant_pair import FIRST_TOKEN, instant_engine
from tfjax.engine.api import Event, Finished, Generation, Sampling, Tokens
from tfjax.engine.drafters.dspark import DSparkDrafter
from tfjax.engine.engine import Engine
from tfjax.engine.target import TargetBackend
from tfjax.lanes import loop

PROMPT, TOKENS, SKIPPED = 100, 3000, 20
SAMPLING = Sampling(temperature=0.8, top_p=0.95, seed=7)


class Parts:
    """Seconds of the engine's thread by part, each without the parts within it; and what the programs were given."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.rounds: list[dict[str, float]] = []
        self.calls: dict[str, tuple[int, int]] = {}
        self._inner = [0.0]

    def timed(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            self._inner.append(0.0)
            began = time.perf_counter()
            try:
                return act(*arguments, **named)
            finally:
                whole = time.perf_counter() - began
                self.seconds[name] = self.seconds.get(name, 0.0) + whole - self._inner.pop()
                self._inner[-1] += whole

        return timed

    def program(self, name: str, compiled: Any) -> Callable[..., Any]:
        call = self.timed(f"call {name}", compiled)

        def counted(*arguments: Any) -> Any:
            if name not in self.calls:
                leaves = jax.tree.leaves(arguments)
                self.calls[name] = (len(leaves), sum(isinstance(leaf, np.ndarray) for leaf in leaves))
            return call(*arguments)

        return counted

    def end_round(self) -> None:
        self.rounds.append(self.seconds)
        self.seconds = {}

    def medians_us(self) -> dict[str, float]:
        rounds = self.rounds[SKIPPED:-1]
        names = dict.fromkeys(name for found in rounds for name in found)
        return {name: 1e6 * statistics.median(found.get(name, 0.0) for found in rounds) for name in names}


@contextmanager
def parts_of(engine: Engine, target: TargetBackend, drafter: DSparkDrafter) -> Iterator[Parts]:
    """Time the parts of all rounds meanwhile."""
    parts = Parts()
    lanes: Any = engine._lanes
    methods: list[tuple[Any, str, str]] = [
        (lanes, "round", "loop"),
        (lanes._planner, "windows", "plan"),
        (lanes, "_secure_pages", "plan"),
        (lanes._asking, "weigh", "weigh"),
        (lanes._asking, "prepare", "ask"),
        (lanes._asking, "observe", "learn"),
        (lanes._round_clock, "settle", "learn"),
        (lanes._backend, "draft", "ask"),
        (drafter, "hold", "lay out the hold"),
        (drafter, "read", "read drafts"),
        (target, "verify", "lay out"),
        (target, "read", "read"),
        (target, "keep", "commit"),
        (drafter, "listen", "lay out absorbing"),
        (loop, "judge", "accept"),
        (engine, "on_tokens", "events"),
    ]
    if target.held is not None:
        methods.append((target.held, "put", "lay out held tokens"))
    owners = [
        (target.step, "verify"),
        (drafter.step, "absorb or hold"),
        *([(target.held, "put")] if target.held else []),
    ]
    with _patches([patch.object(o, name, parts.timed(part, getattr(o, name))) for o, name, part in methods]):
        programs = [(owner, owner._compiled) for owner, _ in owners]
        for owner, name in owners:
            owner._compiled = {key: parts.program(_name(name, key), own) for key, own in owner._compiled.items()}
        try:
            yield parts
        finally:
            for owner, own in programs:
                owner._compiled = own


def _name(owner: str, key: Any) -> str:
    return owner if owner != "absorb or hold" else "absorb" if isinstance(key, int) else "hold"


@contextmanager
def _patches(patches: Sequence[Any]) -> Iterator[None]:
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


def serve(engine: Engine, streams: int, draft: bool, parts: Parts | None) -> tuple[list[float], float]:
    """Thread seconds of every round, and the tokens of a round and stream."""
    ended, marks, tokens = threading.Semaphore(0), [], []

    def sink(number: int, event: Event) -> None:
        if isinstance(event, Finished):
            assert event.error is None, event.error
            ended.release()
        elif number == 0 and isinstance(event, Tokens):
            tokens.append(len(event.tokens))
            marks.append(time.thread_time())
            if parts is not None:
                parts.end_round()

    for number in range(streams):
        prompt = tuple(range(FIRST_TOKEN + number, FIRST_TOKEN + number + PROMPT))
        asked = Generation(
            f"{number}", prompt, TOKENS if draft else TOKENS // 4, SAMPLING, ignore_eos=True, draft=draft
        )
        engine.submit(asked, partial(sink, number))
    for _ in range(streams):
        ended.acquire()
    times = [after - before for before, after in pairwise(marks)]
    return times[SKIPPED:-1], statistics.mean(tokens[SKIPPED:-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--form", choices=["stacks", "modules"], default="stacks", help="how the weights lie")
    parser.add_argument("--streams", default="1,4,16")
    parser.add_argument("--read-drafts", action="store_true", help="as where drafts are read before they are verified")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    arguments = parser.parse_args()
    counts = [int(number) for number in arguments.streams.split(",")]
    target, drafter, engine = instant_engine(arguments.form, max(counts), held=not arguments.read_drafts)
    found = {}
    for streams in counts:
        for draft in (False, True):
            name = f"{streams} {'drafted' if draft else 'plain'}"
            serve(engine, streams, draft, None)
            times, tokens = serve(engine, streams, draft, None)
            with parts_of(engine, target, drafter) as parts:
                serve(engine, streams, draft, parts)
            whole = 1e6 * statistics.median(times)
            found[name] = {"round_us": whole, "tokens": tokens, "parts_us": parts.medians_us(), "calls": parts.calls}
            print(f"{name}: {whole:.0f} us a round, {tokens:.1f} tokens a stream")
            for part, part_us in sorted(found[name]["parts_us"].items(), key=lambda item: -item[1]):
                print(f"    {part:24s} {part_us:7.1f} us")
            for call, (leaves, host) in parts.calls.items():
                print(f"    {call}: {leaves} arrays, {host} of them of the host")
    engine.close()
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
