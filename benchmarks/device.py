"""Runs on a device as one command: `python -m benchmarks.device --suite contract --suite window`.

Each suite prints a short table; `--output` gets all numbers with the versions. A suite that fails says so and the
others still run. Exit code 1 where one failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import sys
import time
import traceback
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

SUITES = ("contract", "kernels", "window", "serve", "exact", "shapes", "engine")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", action="append", choices=SUITES, help="may be repeated (default: all)")
    parser.add_argument("--seconds", type=float, default=200, help="contract, exact and shapes begin nothing after it")
    parser.add_argument("--tokens", type=int, default=100_000, help="that count, wanted of exact (default: 100000)")
    parser.add_argument("--together", type=int, default=8, help="gates of the contract that run at once (default: 8)")
    parser.add_argument("--layers", type=int, default=32, help="layers of the window's model (default: 32)")
    parser.add_argument("--model", help="of the engine's runs (default: $TFJAX_BENCH_MODEL, else the default model)")
    parser.add_argument("--output", type=Path, help="JSON file")
    arguments = parser.parse_args()
    _prepare()
    suites: dict[str, Callable[[], Any]] = {
        "contract": lambda: _contract(arguments.seconds, arguments.together),
        "kernels": _kernels,
        "window": lambda: _window(arguments.layers),
        "serve": _serve,
        "exact": lambda: _exact(arguments.tokens, arguments.seconds),
        "shapes": lambda: _shapes(arguments.seconds),
        "engine": lambda: _engine(arguments.model),
    }
    facts, failed = _facts(), False
    for name in arguments.suite or SUITES:
        start = time.perf_counter()
        print(f"== {name}", flush=True)
        try:
            facts[name] = found = suites[name]()
            failed |= isinstance(found, dict) and bool(found.get("failed"))
        except Exception as error:  # noqa: BLE001 - the other suites still run
            failed = True
            facts[name] = {"error": f"{type(error).__name__}: {error}"[:2000]}
            print("".join(traceback.format_exception(error)[-4:])[-1500:], flush=True)
        print(f"== {name}: {time.perf_counter() - start:.0f} s", flush=True)
        if arguments.output:
            arguments.output.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    return int(failed)


def _prepare() -> None:
    """The server's settings, where all that it needs is installed; all suites but `serve` need jax and flax only."""
    with contextlib.suppress(ImportError):
        from tfjax.runtime import prepare_runtime

        prepare_runtime()


def _facts() -> dict[str, Any]:
    import jax

    def of(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "absent"

    packages = {name: of(name) for name in ("jax", "jaxlib", "jax-cuda13-plugin", "numpy", "tfjax")}
    device = jax.devices()[0]
    return {"device": device.device_kind, "python": platform.python_version(), "packages": packages}


def _contract(seconds: float, together: int) -> Any:
    from tfjax.kernels.contract.running import run

    report = run(say=lambda line: print(line, file=sys.stderr), seconds=seconds, together=together)
    for line in report.lines():
        print(line[:400], flush=True)
    return report.as_json()


def _kernels() -> Any:
    from benchmarks.device_kernels import measure_kernels

    return measure_kernels()


def _window(layers: int) -> Any:
    from benchmarks.device_window import measure_windows

    return measure_windows(layers)


def _serve() -> Any:
    from benchmarks.device_serve import measure_serving

    return measure_serving()


def _exact(tokens: int, seconds: float) -> Any:
    from benchmarks.device_exact import measure_exact

    return measure_exact(tokens, seconds)


def _shapes(seconds: float) -> Any:
    from benchmarks.device_shapes import measure_shapes

    return measure_shapes(seconds)


def _engine(model: str | None) -> Any:
    from benchmarks.device_engine import asked_model, measure_engine

    return measure_engine(asked_model(model))


if __name__ == "__main__":
    sys.exit(main())
