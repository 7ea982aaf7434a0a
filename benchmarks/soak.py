"""The long proof on the real weights: `make soak`, or `python -m benchmarks.soak --tokens 64` for a short one.

Makes every reply of a suite in every way (see exactness.py), compares tokens bit for bit with the serial reference,
prints a table and writes JSON. Exit code 1 where one token differs or too few tokens counted.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from tfjax.runtime import prepare_runtime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=440, help="tokens of each reply (default: 440)")
    parser.add_argument("--suite", default="kinds", help="suite of prompts (default: kinds, with a 3,000-token one)")
    parser.add_argument(
        "--least", type=int, default=50_000, help="counting tokens that the proof needs (default: 50000)"
    )
    parser.add_argument("--dtype", default="auto", choices=["auto", "bfloat16", "float32"])
    parser.add_argument("--drafter", default="auto", help="as for tfjax serve (default: auto)")
    parser.add_argument("--output", type=Path, help="JSON file for the report")
    arguments = parser.parse_args()
    prepare_runtime()

    import jax

    from benchmarks.exactness import SOAK_WAYS, make_jobs
    from benchmarks.real_model import open_matrix
    from benchmarks.suite import load_suite

    lanes = 1 + max(way.streams for way in SOAK_WAYS)
    opened = open_matrix(dtype=arguments.dtype, lanes=lanes, drafter=arguments.drafter)
    jobs = make_jobs(load_suite(arguments.suite), opened.tokenizer, arguments.tokens)
    print(f"{len(jobs)} replies of {arguments.tokens} tokens; serial reference first", flush=True)
    reference = opened.matrix.serial(jobs)
    reports = []
    for way in SOAK_WAYS:
        report = opened.matrix.run(way, jobs, reference)
        reports.append(report)
        print(
            f"{way.name:55s} {report.tokens:7d} tokens {report.counted:7d} counting "
            f"{report.drafted.total():7d} drafted {report.kept.total():7d} kept "
            f"{report.seconds:7.1f} s, {len(report.different)} different",
            flush=True,
        )
    counting = sum(report.counted for report in reports)
    different = sum(len(report.different) for report in reports)
    print(f"{counting} counting tokens compared, {different} replies different")
    if arguments.output:
        facts = {
            "command": "python -m benchmarks.soak",
            "model": opened.description,
            "device": jax.devices()[0].device_kind,
            "arithmetic": opened.backend.plan.arithmetic,
            "tokens_per_reply": arguments.tokens,
            "counting_tokens": counting,
            "different": different,
            "versions": {name: version(name) for name in ("jax", "jaxlib", "flax", "tfjax")}
            | {"python": platform.python_version()},
            "ways": [report.as_dict() for report in reports],
        }
        arguments.output.write_text(json.dumps(facts, indent=1) + "\n")
    return 0 if counting >= arguments.least and not different else 1


if __name__ == "__main__":
    sys.exit(main())
