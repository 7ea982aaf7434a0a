"""Runs on a device as one command: `python -m benchmarks.device --suite contract --suite window`.

Each suite prints a short table; `--output` gets all numbers with the versions after every block, so that a run that is
cut off leaves what it measured. A block that fails says so and the others still run. Exit code 1 where one failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.blocks import Blocks

PACKAGES = ("jax", "jaxlib", "jax-cuda13-plugin", "flax", "numpy", "torch", "transformers", "tfjax")
GOALS = "goals"
SHARE_S = 30.0
"""Of the contract, for gates that have begun."""

type Suite = Callable[[Blocks, argparse.Namespace], None]


def main(words: Sequence[str] | None = None) -> int:
    arguments = _arguments(words)
    facts: dict[str, Any] = {"python": platform.python_version(), "packages": _versions(), "command": sys.argv[1:]}
    end = time.monotonic() + arguments.seconds
    failed = False
    for name in arguments.suite:
        start = time.perf_counter()
        print(f"== {name}", flush=True)

        def write(found: Mapping[str, Any], name: str = name) -> None:
            facts[name] = found
            if arguments.output:
                arguments.output.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")

        blocks = Blocks(end - time.monotonic(), write)
        try:
            if name != GOALS:
                facts["device"] = _device()
            SUITES[name](blocks, arguments)
        except Exception as error:  # noqa: BLE001 - the other suites still run
            blocks.failed.append(name)
            blocks.keep("error", f"{type(error).__name__}: {error}"[:2000])
            print("".join(traceback.format_exception(error)[-4:])[-1500:], flush=True)
        write(blocks.as_dict())
        failed |= bool(blocks.failed)
        print(f"== {name}: {time.perf_counter() - start:.0f} s", flush=True)
    return int(failed)


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", action="append", choices=SUITES, help="may be repeated (default: all but goals)")
    parser.add_argument("--seconds", type=float, default=560, help="of all suites; no block begins that does not fit")
    parser.add_argument("--kernels", choices=["auto", "reference"], default="auto", help="as for tfjax serve")
    parser.add_argument("--block", action="append", help="of the goals, may be repeated (default: all)")
    parser.add_argument("--peer-python", default=sys.executable, help="that has torch and transformers")
    parser.add_argument("--tokens", type=int, default=100_000, help="that count, wanted of exact (default: 100000)")
    parser.add_argument("--together", type=int, default=8, help="gates of the contract that run at once (default: 8)")
    parser.add_argument("--layers", type=int, default=32, help="layers of the window's model (default: 32)")
    parser.add_argument(
        "--model",
        help="of engine and goals (default: $TFJAX_BENCH_MODEL, else the default model)",
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    arguments = parser.parse_args(words)
    arguments.suite = arguments.suite or [name for name in SUITES if name != GOALS]
    if GOALS in arguments.suite and len(arguments.suite) > 1:
        parser.error("--suite goals runs alone: its blocks are processes that each want the whole device")
    return arguments


def _device() -> str:
    """Its name, once the server's settings are made where all that they need is installed."""
    if "jax" not in sys.modules:
        with contextlib.suppress(ImportError):
            from tfjax.runtime import prepare_runtime

            prepare_runtime()
    import jax

    return str(jax.devices()[0].device_kind)


def _versions() -> dict[str, str]:
    def of(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "absent"

    return {name: of(name) for name in PACKAGES}


def _contract(blocks: Blocks, arguments: argparse.Namespace) -> None:
    from tfjax.kernels.contract.running import run

    seconds = max(0.0, blocks.left_s - SHARE_S)
    report = run(say=lambda line: print(line, file=sys.stderr), seconds=seconds, together=arguments.together)
    for line in report.lines():
        print(line[:400], flush=True)
    blocks.keep("report", report.as_json())


def _kernels(blocks: Blocks, arguments: argparse.Namespace) -> None:
    from benchmarks.device_experts import measure_experts
    from benchmarks.device_kernels import measure_kernels

    measure_kernels(blocks)
    measure_experts(blocks)


def _window(blocks: Blocks, arguments: argparse.Namespace) -> None:
    from benchmarks.device_window import measure_windows

    measure_windows(blocks, arguments.layers, arguments.kernels)


def _serve(blocks: Blocks, arguments: argparse.Namespace) -> None:
    from benchmarks.device_serve import measure_serving

    measure_serving(blocks, arguments.kernels)


def _exact(blocks: Blocks, arguments: argparse.Namespace) -> None:
    from benchmarks.device_exact import measure_exact

    found = measure_exact(arguments.tokens, blocks.left_s, arguments.kernels, lambda found: blocks.keep("proof", found))
    blocks.keep("proof", found)
    if found["failed"]:
        blocks.failed.append("proof")


def _shapes(blocks: Blocks, arguments: argparse.Namespace) -> None:
    from benchmarks.device_shapes import measure_shapes

    measure_shapes(blocks, arguments.kernels)


def _engine(blocks: Blocks, arguments: argparse.Namespace) -> None:
    from benchmarks.device_engine import asked_model, measure_engine

    measure_engine(blocks, asked_model(arguments.model))


def _train(blocks: Blocks, arguments: argparse.Namespace) -> None:
    from benchmarks.device_train import measure_training

    measure_training(blocks)


def _goals(blocks: Blocks, arguments: argparse.Namespace) -> None:
    from benchmarks.goals.suite import measure_goals

    measure_goals(blocks, arguments.kernels, arguments.block, arguments.peer_python, arguments.model)


SUITES: Mapping[str, Suite] = {
    GOALS: _goals,
    "contract": _contract,
    "kernels": _kernels,
    "window": _window,
    "serve": _serve,
    "exact": _exact,
    "shapes": _shapes,
    "engine": _engine,
    "train": _train,
}


if __name__ == "__main__":
    sys.exit(main())
