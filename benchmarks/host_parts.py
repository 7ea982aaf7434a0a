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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np

from benchmarks.instant_pair import FIRST_TOKEN, instant_engine
from tfjax.engine.api import Event, Finished, Generation, Sampling
from tfjax.engine.drafters.block_plan import BlockBucket
from tfjax.engine.drafters.dspark import DSparkDrafter
from tfjax.engine.engine import Engine
from tfjax.engine.target import TargetBackend
from tfjax.lanes import loop

PROMPT, TOKENS, SKIPPED = 100, 3000, 20
SAMPLING = Sampling(temperature=0.8, top_p=0.95, seed=7)


class Parts:
    """Seconds of the engine's thread by part, each without the parts within it.

    Attributes:
        calls: by program, the arrays that its latest call took, and how many of them the host had.
    """

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
        call, arrays = self.timed(f"call {name}", compiled), 0

        def counted(*arguments: Any) -> Any:
            nonlocal arrays
            arrays = arrays or len(jax.tree.leaves(arguments))
            self.calls[name] = (arrays, sum(isinstance(argument, np.ndarray) for argument in arguments))
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
        (lanes._planner, "behind", "plan"),
        (lanes._asking, "prepare", "ask"),
        (lanes._asking, "prepare_behind", "ask"),
        (lanes._asking, "observe", "learn"),
        (lanes._round_clock, "settle", "learn"),
        (lanes._backend, "draft", "ask"),
        (drafter, "hold", "lay out the hold"),
        (drafter, "read", "read drafts"),
        (target, "verify", "lay out"),
        (target, "read", "read"),
        (target, "keep", "commit"),
        (target, "listener", "lay out absorbing"),
        (loop, "judge", "accept"),
        (engine, "on_tokens", "events"),
    ]
    owners: list[tuple[Any, Callable[[Any], str]]] = [
        (target.step, lambda bucket: "verify" if bucket in target.plan.verify else "prompt"),
        (drafter.step, lambda key: "hold" if isinstance(key, BlockBucket) else "absorb"),
    ]
    with ExitStack() as patches:
        for owner, name, part in methods:
            patches.enter_context(patch.object(owner, name, parts.timed(part, getattr(owner, name))))
        for owner, name_of in owners:
            programs = {key: parts.program(name_of(key), own) for key, own in owner._compiled.items()}
            patches.enter_context(patch.object(owner, "_compiled", programs))
        yield parts


@contextmanager
def gaps_of(target: TargetBackend, drafter: DSparkDrafter) -> Iterator[list[float]]:
    """Seconds from a round's results to when the next drafts are asked for.

    A device waits so long and for the call, unless a round in flight is queued there meanwhile.
    """
    gaps: list[float] = []
    read_s = [0.0]
    read, hold = target.read, drafter.step.hold

    def reading(ticket: Any) -> Any:
        results = read(ticket)
        read_s[0] = time.perf_counter()
        return results

    def holding(*arguments: Any) -> Any:
        gaps.append(time.perf_counter() - read_s[0])
        return hold(*arguments)

    with patch.object(target, "read", reading), patch.object(drafter.step, "hold", holding):
        yield gaps


def serve(
    engine: Engine, streams: int, tokens: int, *, draft: bool, parts: Parts | None = None
) -> tuple[list[float], float]:
    """Seconds of the engine's thread in every round, and the tokens that a round gave the first stream."""
    ended = threading.Semaphore(0)
    marks: list[float] = []
    counts: list[int] = []

    def sink(number: int, event: Event) -> None:
        if isinstance(event, Finished):
            assert event.error is None, event.error
            ended.release()
        elif number == 0:
            counts.append(len(event.tokens))
            marks.append(time.thread_time())
            if parts is not None:
                parts.end_round()

    for number in range(streams):
        prompt = tuple(range(FIRST_TOKEN + number, FIRST_TOKEN + number + PROMPT))
        asked = Generation(f"{number}", prompt, tokens, SAMPLING, ignore_eos=True, draft=draft)
        engine.submit(asked, partial(sink, number))
    for _ in range(streams):
        ended.acquire()
    times = [after - before for before, after in pairwise(marks)]
    return times[SKIPPED:-1], statistics.mean(counts[SKIPPED:-1])


def measure(
    engine: Engine, target: TargetBackend, drafter: DSparkDrafter, streams: int, *, draft: bool
) -> dict[str, Any]:
    """Microseconds of a round, of its parts, and from results to the next drafts."""
    tokens = TOKENS if draft else TOKENS // 4
    serve(engine, streams, tokens, draft=draft)
    times, yielded = serve(engine, streams, tokens, draft=draft)
    found: dict[str, Any] = {"round_us": 1e6 * statistics.median(times), "tokens": yielded}
    with gaps_of(target, drafter) as gaps:
        serve(engine, streams, tokens, draft=draft)
    if draft:
        found["results_to_drafts_us"] = 1e6 * statistics.median(gaps)
    with parts_of(engine, target, drafter) as parts:
        serve(engine, streams, tokens, draft=draft, parts=parts)
    return found | {"parts_us": parts.medians_us(), "calls": parts.calls}


def show(name: str, found: dict[str, Any]) -> None:
    waits = (
        f", {found['results_to_drafts_us']:.0f} us from results to drafts" if "results_to_drafts_us" in found else ""
    )
    print(f"{name}: {found['round_us']:.0f} us a round{waits}, {found['tokens']:.1f} tokens a stream", flush=True)
    for part, part_us in sorted(found["parts_us"].items(), key=lambda item: -item[1]):
        print(f"    {part:24s} {part_us:7.1f} us")
    for call, (arrays, host) in found["calls"].items():
        print(f"    {call} takes {arrays} arrays, {host} of them of the host")


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
        for name, draft in ((f"{streams} plain", False), (f"{streams} drafted", True)):
            found[name] = measure(engine, target, drafter, streams, draft=draft)
            show(name, found[name])
    engine.close()
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
