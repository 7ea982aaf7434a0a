"""How peers.py talks to an engine's process: a JSON job a line in, a JSON result a line out.

Runs on Python 3.11 too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any


def serve(engine: str, versions: dict[str, str], generate: Callable[[dict[str, Any]], Iterator[int]]) -> None:
    """Announce the engine, then answer jobs until standard input ends.

    `generate(job)` yields token ids as they are ready; the times of the first and the last are measured here.
    """
    import time

    print(json.dumps({"engine": engine, "versions": versions}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        start = time.perf_counter()
        times, tokens = [], []
        for token in generate(job):
            times.append(time.perf_counter() - start)
            tokens.append(token)
        result = {
            "ttft_ms": 1000 * times[0],
            "decode_tps": (len(tokens) - 1) / (times[-1] - times[0]),
            "tokens": tokens,
        }
        print(json.dumps(result), flush=True)
