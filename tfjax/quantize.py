"""`tfjax quantize`: packs the weights of a model or drafter into an MLX directory.

Imports no jax.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfjax import __version__
from tfjax.parsing import CommandParser
from tfjax.terminal import OK, progress_on_stderr, run_command

if TYPE_CHECKING:
    from tfjax.checkpoints.affine import AffineForm
    from tfjax.checkpoints.mlx_writer import Written

NAME = "tfjax quantize"

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
KEEP = 16
"""Bits that stand for leaving weights as they are."""

_SHOWN_KEPT = 6


def parser() -> CommandParser:
    """The command line of `tfjax quantize`."""
    result = CommandParser(
        prog=NAME,
        description=(
            "Pack the weights of a Llama, LFM2 or LFM2-MoE model, or of a drafter, as MLX's affine quantization:\n"
            "each group of weights in a row gets a scale and a bias. `tfjax serve` and MLX both read the result.\n"
            "Norms, convolutions and biases stay as they are. Weights are rounded, so replies differ from the\n"
            "source's, but never between drafted and plain."
        ),
        epilog=f"examples:\n  {NAME} ./LFM2-1.2B ./LFM2-1.2B-4bit\n"
        f"  {NAME} ./drafter ./drafter-8bit --bits 8\n"
        f"  {NAME} owner/model ./model-6bit --bits 6 --embedding-bits 8",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("source", metavar="SOURCE", help="directory of unquantized safetensors, or a hub id")
    result.add_argument("target", metavar="TARGET", type=Path, help="new directory; an existing one is never changed")
    result.add_argument(
        "--bits",
        type=int,
        choices=BITS,
        default=4,
        help="of a weight; fewer are smaller and further from the source: 8 is close to it, 4 the usual compromise, "
        "2 and 3 change replies much (default: 4)",
    )
    result.add_argument(
        "--group-size",
        type=int,
        choices=GROUP_SIZES,
        default=64,
        help="weights that share a scale and a bias; a smaller group is nearer to the source and costs 32 more bits "
        "each time (default: 64, half a bit a weight)",
    )
    result.add_argument(
        "--gate-bits",
        type=int,
        choices=(*BITS, KEEP),
        default=8,
        help="of the routers of a mixture of experts; they are tiny, and a rounded router picks other experts; "
        "16 leaves them as they are (default: 8)",
    )
    result.add_argument(
        "--embedding-bits",
        type=int,
        choices=(*BITS, KEEP),
        help="of embedding and head; 16 leaves them as they are (default: as --bits)",
    )
    result.add_argument("--offline", action="store_true", help="never use the network; SOURCE must be here already")
    result.add_argument("--version", action="version", version=f"tfjax {__version__}")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the directory and returns the exit code."""
    arguments = parser().parse(argv)
    return run_command(NAME, lambda: _quantize(arguments))


def _quantize(arguments: argparse.Namespace) -> int:
    from tfjax.checkpoints.affine import AffineForm
    from tfjax.checkpoints.mlx_rules import Forms
    from tfjax.checkpoints.mlx_writer import quantize_directory
    from tfjax.checkpoints.resolve import resolve_model

    def form(bits: int) -> AffineForm | None:
        return None if bits == KEEP else AffineForm(bits, arguments.group_size)

    forms = Forms(
        matrix=AffineForm(arguments.bits, arguments.group_size),
        router=form(arguments.gate_bits),
        embedding=form(arguments.embedding_bits or arguments.bits),
    )
    with progress_on_stderr() as progress:
        source = resolve_model(arguments.source, offline=arguments.offline, progress=progress)
        written = quantize_directory(source, arguments.target, forms, progress)
    print(report(arguments.target, arguments.group_size, written))
    return OK


def report(target: Path, group_size: int, written: Written) -> str:
    """What was written, in lines for people."""
    share = written.packed / max(1, written.weights)
    size = f"{target}: {written.bytes_after / 1e6:,.1f} MB, {written.bits_per_weight:.2f} bits a weight"
    lines = [f"{size}, from {written.bytes_before / 1e6:,.1f} MB; {share:.1%} of the weights are packed"]
    kept = list(written.kept.items())
    if kept:
        modules = "1 module" if len(kept) == 1 else f"{len(kept)} modules"
        lines.append(f"not packed, because groups of {group_size} do not fill their rows: {modules}")
        lines += [f"  {module} (rows of {columns})" for module, columns in kept[:_SHOWN_KEPT]]
        if len(kept) > _SHOWN_KEPT:
            lines.append(f"  and {len(kept) - _SHOWN_KEPT} more")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
