"""Compiles what a start of the Llama-3-8B shape compiles, without any weights, and says how long it took as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time

from tfjax.runtime import prepare_runtime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drafter", action="store_true", help="with a DSpark drafter of five layers")
    parser.add_argument("--kernels", choices=["auto", "reference"], default="auto")
    parser.add_argument("--tiny", action="store_true", help="a model that compiles in seconds")
    arguments = parser.parse_args()
    prepare_runtime()

    from benchmarks.goals.programs import abstract_start
    from benchmarks.goals.table import LLAMA
    from benchmarks.windows import llama_of
    from tfjax.engine.compiling import compile_all
    from tfjax.kernels.specs import TINY

    config = llama_of(TINY, 2) if arguments.tiny else LLAMA
    start = abstract_start(config, arguments.kernels, drafter=arguments.drafter)
    phases: dict[str, float] = {}
    for phase, programs in start.programs.items():
        began = time.perf_counter()
        compile_all(programs, phase, lambda name, share: None)
        phases[phase] = round(time.perf_counter() - began, 2)
    found = {
        "value": sum(phases.values()),
        "phases_s": phases,
        "programs": sum(len(programs) for programs in start.programs.values()),
        "operators": str(start.kernels.route),
        "note": "" if start.kernels.stacked else f"{start.kernels.route} operators: {start.kernels.reason}",
    }
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
