"""`tfjax research order`: does it matter where a drafter norms queries and keys, and which order serves it better?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfjax import __version__
from tfjax.kinds import Integer
from tfjax.options import ConfigError
from tfjax.parsing import CommandParser
from tfjax.setting_values import DTYPES
from tfjax.terminal import OK, CommandError, progress_on_stderr, run_command

if TYPE_CHECKING:
    from tfjax.research.norm_pairs import LayerDifference

NAME = "tfjax research order"

TOKENS = Integer(2, 1 << 20)
SEED = Integer(0, (1 << 32) - 1)
TEMPERATURE = 0.8
LITTLE = 0.1
"""A difference below which the order hardly matters."""


def parser() -> CommandParser:
    """The command line of `tfjax research order`."""
    result = CommandParser(
        prog=NAME,
        usage="tfjax research order TARGET DRAFTER [flags]",
        description="Print how far the q_norm and k_norm weights of a DSpark drafter let the order of norm and RoPE "
        "show (0: not at all), then serve TARGET with it in both orders and compare the drafts kept in a round, greedy "
        f"and at temperature {TEMPERATURE}. The tokens are the same in both.",
    )
    result.add_argument("target", metavar="TARGET", help="directory of safetensors, GGUF file or hub id")
    result.add_argument("drafter", metavar="DRAFTER", type=Path, help="directory of a DSpark drafter for it")
    result.add_argument(
        "--prompts", metavar="FILE", type=Path, help="prompts to reply to, one a line (default: a dozen built in)"
    )
    result.add_argument("--tokens", metavar="N", default="128", help="most tokens of a reply (default: 128)")
    result.add_argument("--seed", metavar="N", default="1", help="of what is sampled (default: 1)")
    result.add_argument("--dtype", choices=tuple(DTYPES), default="auto", help="number format (default: auto)")
    result.add_argument("--offline", action="store_true", help="never use the network; TARGET must be here already")
    result.add_argument("--version", action="version", version=f"tfjax {__version__}")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Prints both tables and the conclusion, and returns the exit code."""
    arguments = parser().parse(argv)
    return run_command(NAME, lambda: _order(arguments))


def _order(arguments: argparse.Namespace) -> int:
    tokens = _number("--tokens", TOKENS, arguments.tokens)
    seed = _number("--seed", SEED, arguments.seed)
    prompts = read_prompts(arguments.prompts)

    from tfjax.runtime import prepare_runtime

    if "jax" not in sys.modules:
        prepare_runtime()
    from tfjax.config import ServeConfig
    from tfjax.engine.api import Sampling
    from tfjax.research.norm_pairs import total_difference
    from tfjax.research.order_kept import AFTER, BEFORE, compare, conclusion, table
    from tfjax.research.order_serving import Asked, serve_both

    stated, layers = differences(arguments.drafter)
    total = total_difference(layers)
    print(_layers(layers, total), flush=True)
    if total == 0:
        print("\nThe order cannot show: the two weights of each rotated pair are equal.")
        return OK
    config = ServeConfig(
        model=arguments.target,
        drafter=str(arguments.drafter),
        dtype=DTYPES[arguments.dtype],
        offline=arguments.offline,
        parallel=1,
        prompt_cache_gib=0.0,
        drafter_policy="always",
        held_drafts="on",
    )
    drawn = Sampling(temperature=TEMPERATURE, seed=seed)
    samplings = {"greedy": Sampling(temperature=0.0), f"at temperature {TEMPERATURE}": drawn}
    with progress_on_stderr() as progress:
        counts = serve_both(config, Asked(prompts, tokens, samplings), progress)
    compared = {name: compare(counts[BEFORE][name], counts[AFTER][name]) for name in samplings}
    hint = f" The weights differ by less than {LITTLE}, so that little is at stake." if total < LITTLE else ""
    print(f"\n{table(compared)}\n\n{conclusion(compared, stated)}{hint}")
    return OK


def _number(flag: str, kind: Integer, text: str) -> int:
    try:
        return kind.parse(text)
    except ValueError as error:
        raise ConfigError(f"{flag}: {text!r} {error}") from None


def read_prompts(file: Path | None) -> tuple[str, ...]:
    """The prompts of a file, one a line, empty lines left out; without a file those that are built in.

    Raises:
        CommandError: fewer than two, between which no spread can be told.
    """
    if file is None:
        from tfjax.research.order_prompts import PROMPTS

        return PROMPTS
    prompts = tuple(line for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    if len(prompts) < 2:
        raise CommandError(f"--prompts: {file} has {len(prompts)} prompts; give two or more, one a line")
    return prompts


def differences(drafter: Path) -> tuple[str, list[LayerDifference]]:
    """The order that the config of a DSpark drafter leads to, and the differences of its norms.

    Raises:
        CommandError: another kind of drafter, or one whose heads have no norm.
        CheckpointError, ConfigError: one that cannot be read.
    """
    from tfjax.checkpoints import open_checkpoint
    from tfjax.engine.drafters.assets import is_dspark
    from tfjax.models.dspark_config import DSparkConfig
    from tfjax.research.norm_pairs import NORM, layer_differences

    checkpoint = open_checkpoint(drafter.expanduser())
    if not is_dspark(checkpoint.architecture):
        raise CommandError(
            f"{drafter} is a {checkpoint.architecture}, whose order its architecture fixes; give a DSpark drafter"
        )
    config = DSparkConfig.from_hf(checkpoint.config)
    names = [name for name in checkpoint.tensors.infos if NORM.fullmatch(name)]
    if not names:
        raise CommandError(
            f"{drafter} has no q_norm and k_norm weights, so that there is no order to find; "
            "serve it with --drafter-qk-norm none"
        )
    tensors = {name: checkpoint.tensors.read(name) for name in names}
    try:
        return config.qk_norm.value, layer_differences(tensors, interleaved=config.interleaved)
    except ValueError as error:
        raise CommandError(f"{drafter}: {error}; the drafter is damaged, fetch it again") from error


def _layers(layers: Sequence[LayerDifference], total: float) -> str:
    lines = ["difference of the norms' weights within rotated pairs", f"{'layer':>5}{'q_norm':>9}{'k_norm':>9}"]
    lines += [f"{layer.layer:>5}{layer.q:>9.3f}{layer.k:>9.3f}" for layer in layers]
    return "\n".join([*lines, f"{'all':>5}{total:>9.3f}"])


if __name__ == "__main__":
    sys.exit(main())
