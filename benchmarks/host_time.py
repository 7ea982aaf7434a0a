"""What a shared round costs on the host, by streams: `python -m benchmarks.host_time [--output FILE.svg]`.

Every stream has 8 drafts in every round, all of which land; backend and drafter are scripted and take no time. Times
are of the processor, medians of a hundred rounds, least of three runs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.lanes.test_drafter_host_time import DEPTH, PRICED, round_us
from tfjax.plots import line_plot

STREAMS = (1, 2, 4, 8, 16, 32, 64, 128)
KINDS = {"priced": (PRICED, False), "priced, with confidences": (PRICED, True), "each by its own rule": ({}, False)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="SVG file")
    arguments = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {}
    for name, (hold_ms, sure) in KINDS.items():
        times = [min(round_us(streams, hold_ms, sure) for _ in range(3)) / 1e3 for streams in STREAMS]
        found[name] = [(float(streams), ms) for streams, ms in zip(STREAMS, times, strict=True)]
        print(f"{name}: {', '.join(f'{ms:.2f} ms for {streams}' for streams, ms in found[name])}", flush=True)
    if arguments.output:
        title = f"Host time of a shared round, {DEPTH} drafts a stream"
        plot = line_plot(found, title=title, x="streams", y="milliseconds", dots=True)
        arguments.output.write_text(plot, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
