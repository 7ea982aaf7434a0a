"""`python -m tfjax.kernels.contract`: the kernel contract on this machine."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path

from tfjax.kernels.contract.running import COMPILED_TOGETHER, run
from tfjax.kernels.contract.subjects import SUBJECTS
from tfjax.kernels.routes import Route


def main() -> int:
    """Exit status 0 where everything that was run passed and every control turned red."""
    parser = argparse.ArgumentParser(prog="python -m tfjax.kernels.contract", description=__doc__)
    parser.add_argument("--only", action="append", default=[], choices=SUBJECTS, help="a kernel; may be repeated")
    parser.add_argument("--route", type=Route, default=Route.PALLAS_GPU, choices=list(Route), help="the implementation")
    parser.add_argument("--json", type=Path, help="write everything there")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin nothing after this time")
    parser.add_argument("--together", type=int, default=COMPILED_TOGETHER, help="gates that run at once on a device")
    options = parser.parse_args()
    start = time.perf_counter()

    def progress(line: str) -> None:
        print(f"{time.perf_counter() - start:6.1f} s  {line}", file=sys.stderr, flush=True)

    report = run(options.only, route=options.route, say=progress, seconds=options.seconds, together=options.together)
    print(f"route {report.route} on {report.machine}")
    for line in report.lines():
        print(line)
    if options.json:
        options.json.write_text(json.dumps(report.as_json(), indent=1), "utf-8")
    return 0 if report.green else 1


if __name__ == "__main__":
    sys.exit(main())
