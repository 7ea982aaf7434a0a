"""One block of the goals: `python -m benchmarks.goals.child "long context" --output FILE`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.blocks import Blocks
from benchmarks.goals.names import EXPECTED_S

type Block = Callable[[Blocks, argparse.Namespace], None]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("block", choices=EXPECTED_S)
    parser.add_argument("--seconds", type=float, default=300.0, help="no part begins that does not fit (default: 300)")
    parser.add_argument("--kernels", choices=["auto", "reference"], default="auto", help="as for tfjax serve")
    parser.add_argument("--peer-python", default=sys.executable, help="that has torch and transformers")
    parser.add_argument("--model", help="the small model (default: $TFJAX_BENCH_MODEL, else the default model)")
    parser.add_argument("--output", type=Path, help="JSON file")
    arguments = parser.parse_args()

    def write(found: Mapping[str, object]) -> None:
        if arguments.output:
            arguments.output.write_text(json.dumps(found, indent=1) + "\n", "utf-8")

    blocks = Blocks(arguments.seconds, write)
    BLOCKS[arguments.block](blocks, arguments)
    return int(bool(blocks.failed))


def _prepare(blocks: Blocks) -> None:
    """The server's settings, before jax is imported; then which device it is."""
    from tfjax.runtime import prepare_runtime

    prepare_runtime()
    import jax

    blocks.keep("device", jax.devices()[0].device_kind)


def _windows(blocks: Blocks, arguments: argparse.Namespace) -> None:
    _prepare(blocks)
    from benchmarks.goals.llama import measure_windows
    from benchmarks.goals.table import LLAMA

    measure_windows(blocks, LLAMA, arguments.kernels)


def _long(blocks: Blocks, arguments: argparse.Namespace) -> None:
    _prepare(blocks)
    from benchmarks.goals.llama import measure_long
    from benchmarks.goals.table import LLAMA, LONG

    measure_long(blocks, LLAMA, arguments.kernels, LONG)


def _prefill(blocks: Blocks, arguments: argparse.Namespace) -> None:
    _prepare(blocks)
    from benchmarks.goals.prefill import measure_prefill
    from benchmarks.goals.table import LLAMA

    measure_prefill(blocks, LLAMA, arguments.kernels)


def _tax(blocks: Blocks, arguments: argparse.Namespace) -> None:
    _prepare(blocks)
    from benchmarks.goals.table import LLAMA
    from benchmarks.goals.tax import measure_tax

    measure_tax(blocks, LLAMA, arguments.kernels)


def _lfm2(blocks: Blocks, arguments: argparse.Namespace) -> None:
    _prepare(blocks)
    from benchmarks.goals.lfm2 import measure_shape
    from benchmarks.shapes import SHAPES

    shape = next(shape for shape in SHAPES if shape.name == arguments.block)
    measure_shape(blocks, shape, arguments.kernels)


def _small_lanes(blocks: Blocks, arguments: argparse.Namespace) -> None:
    _prepare(blocks)
    from benchmarks.device_engine import asked_model
    from benchmarks.goals.small import measure_lanes

    measure_lanes(blocks, asked_model(arguments.model), arguments.kernels)


def _small_http(blocks: Blocks, arguments: argparse.Namespace) -> None:
    from benchmarks.device_engine import asked_model
    from benchmarks.goals.small import measure_http

    measure_http(blocks, asked_model(arguments.model), arguments.kernels)


def _peer(blocks: Blocks, arguments: argparse.Namespace) -> None:
    from benchmarks.goals.peer import SHARE, Sizes, limit_memory, measure_peer

    limit_memory(SHARE)
    _prepare(blocks)
    measure_peer(blocks, Sizes.of(arguments.block.removeprefix("peer ")), arguments.kernels, arguments.peer_python)


def _compiling(blocks: Blocks, arguments: argparse.Namespace) -> None:
    from benchmarks.goals.compiling import measure_compiling

    measure_compiling(blocks, arguments.kernels)


BLOCKS: Mapping[str, Block] = {
    "windows": _windows,
    "long context": _long,
    "LFM2.5-1.2B": _lfm2,
    "LFM2.5-24B-A2B": _lfm2,
    "small lanes": _small_lanes,
    "small http": _small_http,
    "prefill": _prefill,
    "tax": _tax,
    "peer Llama-3-8B": _peer,
    "peer SmolLM2-135M": _peer,
    "compiling": _compiling,
}


if __name__ == "__main__":
    sys.exit(main())
