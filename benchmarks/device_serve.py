"""Drafted against plain on a trained pair, through engine and lane loop, without a server: speed and equality.

Every cell makes the same replies with and without drafts, one way after the other, several times.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.blocks import Blocks
from benchmarks.replies import Made, make
from tfjax.config import ServeConfig
from tfjax.engine.api import Generation, Sampling
from tfjax.engine.drafters.assets import ASSETS
from tfjax.engine.engine import Engine
from tfjax.engine.load import load_engine
from tfjax.terminal import PhaseLines

PAIR = "lfm2-moe-code"
STREAMS, TEMPERATURES, REPEATS, TOKENS = (1, 4, 16), (0.0, 0.8), 3, 256
CELL_S = 30.0
PROMPTS = (
    '"""Read a table of numbers."""\n\nfrom __future__ import annotations\n\nimport csv\n',
    "class Queue:\n    def __init__(self, maxsize=0):\n        self.maxsize = maxsize\n",
    "def parse_args(argv=None):\n    parser = argparse.ArgumentParser(",
    "import unittest\n\nclass TestSorting(unittest.TestCase):\n    def test_empty(self):\n",
    'def read_file(path, encoding=\'utf-8\'):\n    """Return the text of a file.\n',
    "    for key, value in sorted(mapping.items()):\n        if value is None:\n",
)


def measure_serving(
    blocks: Blocks,
    kernels: str = "auto",
    *,
    streams: Sequence[int] = STREAMS,
    repeats: int = REPEATS,
    tokens: int = TOKENS,
) -> None:
    """A block for each number of streams and temperature; one fails where a reply differs."""
    parallel = max(streams)
    config = ServeConfig(model=str(ASSETS / PAIR), parallel=parallel, context=1024, prompt_cache_gib=0, kernels=kernels)
    engine = load_engine(config, PhaseLines())
    try:
        about: Any = engine.capabilities()
        blocks.keep("about", {name: about[name] for name in ("kernels", "arithmetic", "window_ms", "drafter")})
        print(f"{PAIR} with {about['drafter']['name']}, {about['arithmetic']}, windows {about['window_ms']} ms")
        print(
            "drafted/plain until all replies are whole (least, most); of the mean reply; of the one that it slows most"
        )
        print("streams    T          ratio               mean  slowest  plain tok/s  kept a round  counting  differing")
        for count in streams:
            for temperature in TEMPERATURES:
                cell = Cell(engine, count, temperature, tokens)
                blocks.run(f"{count} streams, T {temperature:g}", CELL_S, lambda: cell.measured(repeats))  # noqa: B023
    finally:
        engine.close()


@dataclass(frozen=True, slots=True)
class Cell:
    """One number of streams at one temperature."""

    engine: Engine
    streams: int
    temperature: float
    tokens: int

    def measured(self, repeats: int) -> dict[str, Any]:
        """Both ways, one after the other, so many times.

        Raises:
            RuntimeError: a reply differs.
        """
        ratios, mean_ratios, slowest_ratios = list[float](), list[float](), list[float]()
        plain_rates, drafted, differing, counting = [], list[Made](), 0, 0
        self._make(draft=True)
        for repeat in range(repeats):
            found = {}
            for draft in (True, False) if repeat % 2 else (False, True):
                found[draft] = self._make(draft=draft)
            drafted, plain = found[True][1], found[False][1]
            differing += sum(one.tokens != other.tokens for one, other in zip(drafted, plain, strict=True))
            counting += sum(reply.counting for reply in drafted)
            ratios.append(found[False][0] / found[True][0])
            spans = {draft: [reply.finished.stats.decode_ms for reply in made] for draft, (_, made) in found.items()}
            mean_ratios.append(statistics.fmean(spans[False]) / statistics.fmean(spans[True]))
            slowest_ratios.append(min(one / other for one, other in zip(spans[False], spans[True], strict=True)))
            plain_rates.append(sum(len(reply.tokens) for reply in plain) / found[False][0])
        stats = [reply.finished.stats for reply in drafted]
        kept = sum(one.accepted for one in stats) / max(1, sum(one.rounds for one in stats))
        cell = {
            "streams": self.streams,
            "temperature": self.temperature,
            "ratio": round(statistics.median(ratios), 3),
            "ratios": [round(ratio, 3) for ratio in ratios],
            "mean_reply_ratio": round(statistics.median(mean_ratios), 3),
            "slowest_reply_ratio": round(statistics.median(slowest_ratios), 3),
            "plain_tokens_per_s": round(statistics.median(plain_rates), 1),
            "kept_per_round": round(kept, 3),
            "counting_tokens": counting,
            "differing_replies": differing,
        }
        print(_line(cell), flush=True)
        if differing:
            raise RuntimeError(f"{differing} drafted replies are not the plain ones: {cell}")
        return cell

    def _make(self, *, draft: bool) -> tuple[float, list[Made]]:
        """Seconds and replies of one batch, all submitted at once."""
        generations = [
            Generation(
                id=str(number),
                prompt=tuple(self.engine.tokenizer.encode(PROMPTS[number % len(PROMPTS)])),
                max_tokens=self.tokens,
                sampling=Sampling(temperature=self.temperature, seed=number),
                ignore_eos=True,
                draft=draft,
            )
            for number in range(self.streams)
        ]
        start = time.perf_counter()
        made = make(self.engine, generations)
        return time.perf_counter() - start, made


def _line(cell: dict[str, Any]) -> str:
    spread = f"({min(cell['ratios']):.2f}, {max(cell['ratios']):.2f})"
    return (
        f"{cell['streams']:7d} {cell['temperature']:4g}  {cell['ratio']:13.2f} {spread:14s}"
        f"  {cell['mean_reply_ratio']:4.2f}  {cell['slowest_reply_ratio']:7.2f}"
        f"  {cell['plain_tokens_per_s']:11.0f}  {cell['kept_per_round']:12.2f}"
        f"  {cell['counting_tokens']:8d}  {cell['differing_replies']:9d}"
    )
